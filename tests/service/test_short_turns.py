"""Threads take short turns while a session is reduced, and their usual ones afterwards."""

from __future__ import annotations

import sys

from contextstash.service.short_turns import TURN_SECONDS, short_turns


def test_turns_are_short_until_the_last_reduction_ends() -> None:
    usual = sys.getswitchinterval()
    with short_turns():
        with short_turns():
            assert sys.getswitchinterval() <= TURN_SECONDS * 1.01
        assert sys.getswitchinterval() <= TURN_SECONDS * 1.01
    assert sys.getswitchinterval() == usual
