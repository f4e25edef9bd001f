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


@pytest.mark.parametrize(
    ("text", "is_handle"),
    [
        ("out_abcdefgh234567zz", True),
        ("sum_abcdefgh234567zz-2", True),
        ("out_abcdefgh", False),
        ("out_abcdefgh2", False),
        ("out_abcdefgh-12", False),
        ("a/out_abcdefgh234567zz", False),
    ],
)
def test_a_handle_is_recognized_by_its_form(text: str, is_handle: bool) -> None:
    assert bool(HANDLE.fullmatch(text)) == is_handle
