"""Handles: too long for collisions, and those of former versions still name what they named."""

from __future__ import annotations

import pytest

from contextstash_storage.handles import HANDLE, former_handle, handle_of, resolved


@pytest.mark.parametrize("kind", ["out", "sum"])
def test_a_handle_has_80_bits_and_begins_as_that_of_a_former_version(kind: str) -> None:
    handle = handle_of(kind, "some text")
    assert handle == handle_of(kind, "some text") != handle_of(kind, "some other text")
    assert HANDLE.fullmatch(handle)
    assert len(handle) == len("out_") + 80 // 5
    former = former_handle(handle[:12])
    assert former is not None
    assert former.first <= handle < former.end


@pytest.mark.parametrize("text", ["out_abcdefgh", "out_abcdefgh-12", "out_abcdefgh234567zz", "sum_abcdefgh234567zz-2"])
def test_handles_of_all_versions_are_recognized(text: str) -> None:
    assert HANDLE.fullmatch(text)


@pytest.mark.parametrize("text", ["out_abcdefg", "out_abcdefgh2", "out_abcdefgh234567zz-2", "a/out_abcdefgh", "out_a"])
def test_other_names_are_not_handles_of_a_former_version(text: str) -> None:
    assert former_handle(text) is None


def test_a_former_handle_is_resolved_among_the_known_ones() -> None:
    known = ["out_abcdefgh234567zz", "out_abcdefgh234567zz-2", "out_bbbbbbbb"]
    assert resolved("out_abcdefgh", known) == "out_abcdefgh234567zz"
    assert resolved("out_abcdefgh-2", known) == "out_abcdefgh234567zz-2"
    assert resolved("out_bbbbbbbb", known) == "out_bbbbbbbb"
    assert resolved("out_abcdefgh", [*known, "out_abcdefghzzzzzzzz"]) == "out_abcdefgh"
    assert resolved("out_zzzzzzzz", known) == "out_zzzzzzzz"
