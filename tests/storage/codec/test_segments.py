"""Segments: what was put into one comes back, and every damage is noticed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.codec.segments import BYTES, MESSAGES, Stored, bodies_in, grouped, packed, unpacked
from contextstash_storage.errors import StoreError

contents = st.builds(Stored, body=st.binary(max_size=50), text=st.none() | st.binary(max_size=50))
KEY = (7,)
SOME = [Stored(f'{{"content":"message {place}"}}'.encode(), b"[0]" if place % 2 else None) for place in range(3)]


@given(st.lists(contents, min_size=1, max_size=9), st.integers(0, 10**6))
def test_any_contents_come_back_equal(stored: list[Stored], first_seq: int) -> None:
    segment = packed(KEY, first_seq, stored)
    assert list(unpacked(KEY, first_seq, len(stored), segment.content).values()) == stored


@given(st.lists(st.integers(0, BYTES), max_size=200))
def test_a_segment_is_full_by_its_messages_or_by_its_bytes(sizes: list[int]) -> None:
    stored = [Stored(b"x" * size, None) for size in sizes]
    segments = grouped(KEY, 5, stored)
    assert all(each.is_full for each in segments[:-1])
    assert all(each.messages <= MESSAGES for each in segments)
    rows = [(each.first_seq, each.messages, each.content) for each in segments]
    found = bodies_in(KEY, rows, range(5, 5 + len(stored)))
    assert [found[seq] for seq in sorted(found)] == stored


def test_each_flipped_bit_is_noticed_or_changes_nothing() -> None:
    content = packed(KEY, 4, SOME).content
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert list(unpacked(KEY, 4, 3, bytes(damaged)).values()) == SOME
        except StoreError as error:
            assert "messages 4 to 6" in str(error)  # noqa: PT017 - an error is one of two right outcomes


@pytest.mark.parametrize(("key", "first_seq", "messages"), [((8,), 4, 3), (KEY, 5, 3), (KEY, 4, 2)])
def test_a_segment_in_the_place_of_another_is_not_read(key: tuple[int], first_seq: int, messages: int) -> None:
    with pytest.raises(StoreError, match="damaged"):
        unpacked(key, first_seq, messages, packed(KEY, 4, SOME).content)


def test_a_segment_that_is_missing_is_noticed() -> None:
    with pytest.raises(StoreError, match="message 3"):
        bodies_in(KEY, [(0, 3, packed(KEY, 0, SOME).content)], [1, 3])
