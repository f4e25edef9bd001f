"""What is derived from a message comes back from its short form."""

from __future__ import annotations

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from contextstash_storage.records import Block, BlockType, Kind, NewMessage, Role, Usage
from contextstash_storage.rows import (
    KINDS,
    ROLES,
    TYPES,
    facts_of,
    fields_of,
    group_of,
)

texts = st.none() | st.text(max_size=5)
counts = st.integers(0, 10**6)
blocks = st.builds(
    Block,
    type=st.sampled_from(TYPES),
    tokens=counts,
    size=counts,
    call_id=texts,
    tool=texts,
    argument=texts,
    is_error=st.booleans(),
)
messages = st.builds(
    NewMessage,
    body=st.just({}),
    role=st.sampled_from(ROLES),
    kind=st.sampled_from(KINDS),
    blocks=st.lists(blocks, max_size=4).map(tuple),
    usage=st.none() | st.builds(Usage, prompt_tokens=counts, cached_tokens=counts, cache_write_tokens=counts),
    group=texts,
    agent_visible=st.booleans(),
)


def read(stored: str) -> NewMessage:
    return NewMessage.model_validate({"body": {}, **fields_of(stored)})


@given(messages)
def test_any_message_comes_back_equal(message: NewMessage) -> None:
    stored = facts_of(message)
    assert read(stored) == message
    assert group_of(stored) == message.group


def test_each_name_keeps_the_place_that_is_stored_for_it() -> None:
    assert ROLES == ("system", "user", "assistant", "tool")
    assert KINDS == ("message", "host", "tool_result", "tool_result_archived", "tool_summary", "summary")
    assert TYPES == ("text", "thinking", "tool_call", "tool_result", "image", "document", "opaque")
    assert (set(ROLES), set(KINDS), set(TYPES)) == (set(get_args(Role)), set(get_args(Kind)), set(get_args(BlockType)))


def test_absent_and_empty_fields_take_no_room() -> None:
    call = Block(type="tool_call", tokens=20, size=34, call_id="call_1", tool="read_file", argument="src/a.py")
    message = NewMessage(body={}, role="assistant", blocks=(Block(type="text", tokens=27, size=52), call))
    assert facts_of(message) == '[32,[[0,27,52],[2,20,34,"call_1","read_file","src/a.py"]]]'
