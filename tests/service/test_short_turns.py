"""Threads take short turns while a session is reduced, and no full garbage collection runs; afterwards as usual."""

from __future__ import annotations

import gc
import sys

from contextstash.service.short_turns import COLLECTIONS_TO_FULL, TURN_SECONDS, short_turns


def test_turns_are_short_until_the_last_reduction_ends() -> None:
    usual = sys.getswitchinterval()
    with short_turns():
        with short_turns():
            assert sys.getswitchinterval() <= TURN_SECONDS * 1.01
        assert sys.getswitchinterval() <= TURN_SECONDS * 1.01
    assert sys.getswitchinterval() == usual


def test_full_garbage_collections_wait_until_the_last_reduction_ends() -> None:
    usual = gc.get_threshold()
    with short_turns():
        with short_turns():
            assert gc.get_threshold() == (*usual[:2], COLLECTIONS_TO_FULL)
        assert gc.get_threshold() == (*usual[:2], COLLECTIONS_TO_FULL)
    assert gc.get_threshold() == usual
