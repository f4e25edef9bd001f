"""Handles: too long for collisions, and recognized by their form."""

from __future__ import annotations

import pytest

from contextstash_storage.records import HANDLE, handle_of


@pytest.mark.parametrize("kind", ["out", "sum"])
def test_a_handle_has_80_bits(kind: str) -> None:
    handle = handle_of(kind, "some text")
    assert handle == handle_of(kind, "some text") != handle_of(kind, "some other text")
    assert HANDLE.fullmatch(handle)
    assert len(handle) == len("out_") + 80 // 5


@pytest.mark.parametrize("text", ["out_abcdefgh234567zz", "sum_abcdefgh234567zz-2"])
def test_a_handle_is_recognized_also_with_a_number(text: str) -> None:
    assert HANDLE.fullmatch(text)


@pytest.mark.parametrize("text", ["out_abcdefgh", "out_abcdefgh2", "out_abcdefgh-12", "a/out_abcdefgh234567zz"])
def test_other_names_are_no_handles(text: str) -> None:
    assert not HANDLE.fullmatch(text)
