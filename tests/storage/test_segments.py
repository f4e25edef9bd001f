"""Messages as they are stored: the facts of each, and segments, whose every damage is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.errors import StoreError
from contextstash_storage.messages import MESSAGES, fingerprint, fingerprint_in, line_of, message_of, packed, unpacked
from contextstash_storage.records import (
    FACTS,
    Block,
    BlockType,
    Kind,
    Message,
    NewMessage,
    Record,
    Role,
    Usage,
    body_of,
    stored_content,
    texts_of,
    to_bytes,
    to_json,
)
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import now
from tests.support.conversations import json_objects
from tests.support.stored_sessions import SESSION as NAME
from tests.support.stored_sessions import record, says

SESSION = 7
SOME = [stored_content(b'{"content":"message"}', [(0, "message")] * place) for place in range(3)]


@given(st.lists(st.tuples(json_objects, st.lists(st.tuples(st.integers(0, 9), st.text())))), st.integers(0, 10**6))
def test_any_contents_come_back_equal_key_order_included(
    contents: list[tuple[dict[str, Any], list[tuple[int, str]]]], first_seq: int
) -> None:
    stored = [stored_content(to_bytes(body), texts) for body, texts in contents]
    read = unpacked(SESSION, first_seq, len(stored), packed(SESSION, first_seq, stored))
    assert list(read) == list(range(first_seq, first_seq + len(stored)))
    assert json.dumps([body_of(each) for each in read.values()]) == json.dumps([body for body, _ in contents])
    assert [texts_of(each) for each in read.values()] == [texts for _, texts in contents]


def test_each_flipped_bit_is_noticed_or_changes_nothing() -> None:
    content = packed(SESSION, 4, SOME)
    for bit in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            assert list(unpacked(SESSION, 4, 3, bytes(damaged)).values()) == SOME
        except StoreError as error:
            assert "messages 4 to 6" in str(error)  # noqa: PT017 - an error is one of two right outcomes


@pytest.mark.parametrize(("session", "first_seq", "messages"), [(8, 4, 3), (SESSION, 5, 3), (SESSION, 4, 2)])
def test_a_segment_in_the_place_of_another_is_not_read(session: int, first_seq: int, messages: int) -> None:
    with pytest.raises(StoreError, match="damaged"):
        unpacked(session, first_seq, messages, packed(SESSION, 4, SOME))


async def test_a_segment_that_is_missing_is_noticed(store: SessionStore) -> None:
    await record(store, *(says(f"message {place}") for place in range(2 * MESSAGES)))
    await store.database.write(lambda tx: tx.execute("DELETE FROM segments WHERE first_seq = ?", (MESSAGES,)))
    with pytest.raises(StoreError, match=f"message {MESSAGES}"):
        await store.read_messages(NAME, first=MESSAGES - 1)
    assert len(await store.read_messages(NAME, last=MESSAGES - 1)) == MESSAGES


@pytest.mark.parametrize("batch", [1, 10, MESSAGES - 1, MESSAGES, MESSAGES + 1, 3 * MESSAGES + 5])
async def test_only_the_newest_segment_is_not_full_however_messages_came(store: SessionStore, batch: int) -> None:
    for first in range(0, 5 * MESSAGES + 7, batch):
        await record(store, *(says(f"message {first + place}") for place in range(batch)))
    text = "SELECT first_seq, messages FROM segments ORDER BY first_seq"
    segments = await store.database.read(lambda tx: tx.rows(text))
    count = (await store.get_session(NAME)).counters.messages
    full = count // MESSAGES
    assert segments[:full] == [(number * MESSAGES, MESSAGES) for number in range(full)]
    assert sum(messages for _, messages in segments) == count
    stored = await store.read_messages(NAME)
    assert [message.body for message in stored] == [says(f"message {place}").body for place in range(count)]


def plainly(kind: type[Record]) -> Callable[..., Record]:
    """Makes a record: of the class itself, hypothesis would give the fields by their short names too."""
    return lambda **fields: kind(**fields)


texts = st.none() | st.text(max_size=5)
counts = st.integers(0, 10**6)
blocks = st.builds(
    plainly(Block),
    type=st.sampled_from(get_args(BlockType)),
    tokens=counts,
    size=counts,
    call_id=texts,
    tool=texts,
    argument=texts,
    is_error=st.booleans(),
)
messages = st.builds(
    plainly(NewMessage),
    body=st.just({}),
    key=texts,
    role=st.sampled_from(get_args(Role)),
    kind=st.sampled_from(get_args(Kind)),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    usage=st.none() | st.builds(plainly(Usage), prompt_tokens=counts, cached_tokens=counts, cache_write_tokens=counts),
    group=texts,
    agent_visible=st.booleans(),
)


@given(messages)
def test_any_message_comes_back_equal(message: NewMessage) -> None:
    fields = {name: getattr(message, name) for name in FACTS}
    stored = Message(session_id="one", seq=7, key=message.key, created_at=now(), **fields)
    line = line_of(stored, to_json(message, FACTS), fingerprint({}))
    assert b"\n" not in line
    assert message_of("one", 7, line) == stored
    assert fingerprint_in(line) == fingerprint({})
