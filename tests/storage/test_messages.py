"""Messages as they are stored: segments, whose every damage is noticed, what is new in a session, and handles."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.errors import StoreError
from contextstash_storage.messages import MESSAGES, packed, unpacked
from contextstash_storage.records import (
    HANDLE,
    MAX_MISSING,
    KnownPart,
    NewMessage,
    Request,
    body_of,
    handle_of,
    stored_content,
    texts_of,
    to_bytes,
)
from contextstash_storage.store import SessionStore
from tests.support.conversations import json_objects
from tests.support.stored_sessions import SESSION, answers, archiving, calls, record, says

ROW = 7
SOME = [stored_content(b'{"content":"message"}', [(0, "message")] * place) for place in range(3)]


@given(st.lists(st.tuples(json_objects, st.lists(st.tuples(st.integers(0, 9), st.text())))), st.integers(0, 10**6))
def test_any_contents_come_back_equal_key_order_included(
    contents: list[tuple[dict[str, Any], list[tuple[int, str]]]], first_seq: int
) -> None:
    for body, texts in contents:  # most texts are in the body; here some twice, and more than MAX_MISSING are not
        texts += [(place, value) for place, value in enumerate(body.values()) if isinstance(value, str)] * 2
        texts += texts[:1] * MAX_MISSING
    stored = [stored_content(to_bytes(body), texts) for body, texts in contents]
    read = unpacked(ROW, first_seq, len(stored), packed(ROW, first_seq, stored))
    assert json.dumps([body_of(each) for each in read]) == json.dumps([body for body, _ in contents])
    assert [texts_of(each) for each in read] == [texts for _, texts in contents]


def test_each_flipped_bit_is_noticed_or_changes_nothing() -> None:
    content = packed(ROW, 4, SOME)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert unpacked(ROW, 4, 3, bytes(damaged)) == SOME
        except StoreError as error:
            assert "messages 4 to 6" in str(error)  # noqa: PT017 - an error is one of two right outcomes


@pytest.mark.parametrize(("session", "first_seq", "messages"), [(8, 4, 3), (ROW, 5, 3), (ROW, 4, 2)])
def test_a_segment_in_the_place_of_another_is_not_read(session: int, first_seq: int, messages: int) -> None:
    with pytest.raises(StoreError, match="damaged"):
        unpacked(session, first_seq, messages, packed(ROW, 4, SOME))


async def test_a_segment_that_is_missing_is_noticed(store: SessionStore) -> None:
    await record(store, *(says(f"message {place}") for place in range(2 * MESSAGES)))
    await store.database.write(lambda tx: tx.execute("DELETE FROM segments WHERE first_seq = ?", (MESSAGES,)))
    with pytest.raises(StoreError, match=f"message {MESSAGES}"):
        await store.read_messages(SESSION, first=MESSAGES - 1)
    assert len(await store.read_messages(SESSION, last=MESSAGES - 1)) == MESSAGES


@pytest.mark.parametrize("batch", [1, 10, MESSAGES - 1, MESSAGES, MESSAGES + 1, 3 * MESSAGES + 5])
async def test_only_the_newest_segment_is_not_full_however_messages_came(store: SessionStore, batch: int) -> None:
    for first in range(0, 5 * MESSAGES + 7, batch):
        await record(store, *(says(f"message {first + place}") for place in range(batch)))
    text = "SELECT first_seq, messages FROM segments ORDER BY first_seq"
    segments = await store.database.read(lambda tx: tx.rows(text))
    count = (await store.get_session(SESSION)).counters.messages
    full = count // MESSAGES
    assert segments[:full] == [(number * MESSAGES, MESSAGES) for number in range(full)]
    assert sum(messages for _, messages in segments) == count
    stored = await store.read_messages(SESSION)
    assert [message.body for message in stored] == [says(f"message {place}").body for place in range(count)]


@pytest.mark.parametrize("kind", ["out", "sum"])
def test_a_handle_has_80_bits(kind: str) -> None:
    handle = handle_of(kind, "some text")
    assert handle == handle_of(kind, "some text") != handle_of(kind, "some other text")
    assert HANDLE.fullmatch(handle)
    assert len(handle) == len("out_") + 80 // 5


def looped(messages: int) -> list[NewMessage]:
    """Calls, each with its result."""
    return [
        calls(f"c{number}") if number % 2 == 0 else answers(f"c{number - 1}", handle=f"out_{number}")
        for number in range(messages)
    ]


def request(messages: int) -> Request:
    return Request(messages=messages, edits=0, appended=1, budget=9, counted=1, tokens=1)


async def test_news_are_what_lies_beyond_the_known_part(store: SessionStore) -> None:
    await record(store, *looped(12))
    await store.change_session(SESSION, edits=[archiving(1), archiving(3), archiving(5)], expected=0)
    await store.append_request(SESSION, request(1))
    newest = await store.append_request(SESSION, request(2))
    news = await store.read_news(SESSION, KnownPart(first=8, edits=1))
    assert news.session == await store.get_session(SESSION)
    assert news.request == newest
    assert list(news.edits) == await store.read_edits(SESSION, after=1)
    assert list(news.messages) == await store.read_messages(SESSION, first=8)
    assert list(news.outputs) == await store.read_outputs(SESSION, first=8) != []
    news = await store.read_news(SESSION, KnownPart())
    assert (news.messages, news.outputs, news.request, len(news.edits)) == ((), (), newest, 3)
    assert (await store.read_news(SESSION, KnownPart(first=12, edits=3))).messages == ()


async def test_many_new_messages_are_left_to_who_needs_them(store: SessionStore) -> None:
    await record(store, *looped(30))
    read = [(await store.read_news(SESSION, KnownPart(first=9, most=most))).messages for most in (20, 19)]
    assert [[message.seq for message in messages] for messages in read] == [[*range(9, 30)], [9]]
