"""What append_messages stores, skips and returns."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import (
    ArchiveEdit,
    Block,
    Call,
    Counters,
    Cursor,
    Edited,
    Message,
    NewMessage,
    Part,
    Usage,
)
from contextstash_storage.store import SessionStore
from tests.support.conversations import json_objects
from tests.support.effort import examples
from tests.support.stored_sessions import (
    SESSION,
    answers,
    archiving,
    bodies,
    conversation,
    count,
    new_session,
    record,
    says,
)

USAGE = Usage(prompt_tokens=900, completion_tokens=40, cached_tokens=800)


async def test_messages_get_successive_positions_and_are_counted(store: SessionStore) -> None:
    appended = await record(store, *conversation(2))
    assert [message.seq for message in appended.messages] == [0, 1, 2, 3]
    again = await record(store, says("one more question"))
    assert (again.messages[0].seq, again.session.counters.messages) == (4, 5)
    assert (await store.get_session(SESSION)).counters == again.session.counters


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=json_objects)
async def test_a_body_is_read_as_it_was_recorded(store: SessionStore, body: dict[str, Any]) -> None:
    session = await new_session(store, uuid.uuid4().hex)
    await record(store, NewMessage(body=body, role="user"), session_id=session.session_id)
    assert json.dumps(await bodies(store, session.session_id)) == json.dumps([body])


async def test_what_is_derived_is_read_as_it_was_recorded_hostile_characters_included(store: SessionStore) -> None:
    block = Block(type="tool_call", call_id="\ud800", tool="Ba\x00sh", argument="cat \udfff", size=3)
    when = datetime(2026, 11, 20, 12, tzinfo=UTC)
    message = says("\ud800\x00 odd", blocks=(block,), created_at=when, group="g\ud800", agent_visible=False)
    await record(store, message)
    [read] = await store.read_messages(SESSION)
    assert read == Message(
        session_id=SESSION,
        seq=0,
        body=message.body,
        **message.model_dump(include={"role", "kind", "blocks", "group", "created_at", "agent_visible"}),
    )


async def test_an_unidentified_batch_is_appended(store: SessionStore) -> None:
    said = ["continue", "did step 1", "continue", "continue"]
    for text in said:
        appended = await record(store, says(text))
        assert (len(appended.messages), appended.duplicates) == (1, 0)
    assert [body["content"] for body in await bodies(store)] == said


async def test_a_batch_sent_again_with_its_position_is_stored_once(store: SessionStore) -> None:
    await record(store, *conversation(2), first_seq=0)
    again = await record(store, *conversation(2), first_seq=0)
    assert (again.messages, again.duplicates, again.first_seq, again.session.counters.messages) == ((), 4, 0, 4)
    grown = await record(store, *conversation(3)[2:], first_seq=2)
    assert ([message.seq for message in grown.messages], grown.duplicates, grown.first_seq) == ([4, 5], 2, 2)
    assert await bodies(store) == [message.body for message in conversation(3)]


async def test_another_message_at_a_position_is_refused_and_named(store: SessionStore) -> None:
    await record(store, *conversation(2))
    with pytest.raises(BadInputError, match=r"At position 3 .* message 1 of this batch; .* is 4\. .* whole=true"):
        await record(store, conversation(2)[2], says("another reply"), first_seq=2)
    with pytest.raises(BadInputError, match="first_seq is 5, but the next position of this session is 4"):
        await record(store, says("far away"), first_seq=5)
    assert await bodies(store) == [message.body for message in conversation(2)]


async def test_a_message_whose_cache_breakpoint_moved_is_the_same_message(store: SessionStore) -> None:
    def asked(**mark: Any) -> NewMessage:
        return NewMessage(body={"role": "user", "content": [{"type": "text", "text": "hi", **mark}]}, role="user")

    await record(store, asked(cache_control={"type": "ephemeral"}))
    assert (await record(store, asked(), first_seq=0)).duplicates == 1
    [body] = await bodies(store)
    assert body["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_a_batch_sent_again_with_its_id_is_stored_once_wherever_others_have_come(store: SessionStore) -> None:
    await record(store, says("first"))
    once = await record(store, *conversation(2), batch_id="turn 1")
    await record(store, says("meanwhile"))
    again = await record(store, *conversation(2), batch_id="turn 1")
    assert (once.first_seq, again.first_seq, again.messages, again.duplicates) == (1, 1, (), 4)
    other = await record(store, *conversation(2), batch_id="turn 2")
    assert (other.first_seq, other.duplicates) == (6, 0)


async def test_the_id_of_another_batch_is_refused(store: SessionStore) -> None:
    await record(store, *conversation(2), batch_id="turn 1")
    with pytest.raises(BadInputError, match="'turn 1' was used in this session for other messages, from position 0"):
        await record(store, *conversation(2)[:3], batch_id="turn 1")
    await new_session(store, "two")
    assert (await record(store, says("hi"), batch_id="turn 1", session_id="two")).duplicates == 0


async def test_a_message_with_a_key_is_known_by_its_key_alone(store: SessionStore) -> None:
    first = await record(store, says("yes", key="k1"), says("yes", key="k2"), says("yes", key="k2"))
    assert (len(first.messages), first.duplicates) == (2, 1)
    again = await record(store, says("no", key="k1"), says("yes", key="k3"))
    assert ([message.key for message in again.messages], again.duplicates) == (["k3"], 1)
    assert await store.find_key(SESSION, "k3") == 2
    assert await store.find_key(SESSION, "k4") is None


async def test_outputs_get_their_position_and_a_handle_of_their_own(store: SessionStore) -> None:
    await record(store, *(answers(f"call_{place}") for place in range(3)))
    outputs = await store.read_outputs(SESSION)
    assert [(output.handle, output.seq) for output in outputs] == [("out_a", 0), ("out_a-2", 1), ("out_a-3", 2)]
    assert await store.find_output("out_a-2") == (SESSION, outputs[1])
    assert await store.find_handles("out_a-", 10) == ["out_a-2", "out_a-3"]


async def test_a_reply_that_reports_usage_is_a_model_call(store: SessionStore) -> None:
    await record(store, says("hi"), says("hello", role="assistant", usage=USAGE, model="gpt-5"))
    [call] = await store.read_log(SESSION, Call)
    assert (call.purpose, call.model, call.request_seq, call.prompt_tokens, call.cached_tokens) == (
        "agent",
        "gpt-5",
        0,
        900,
        800,
    )


async def test_a_reply_in_several_messages_is_one_model_call_with_its_last_report(store: SessionStore) -> None:
    part: dict[str, Any] = {"role": "assistant", "group": "msg_1"}
    await record(store, says("hi"), says("thinking…", **part), says("one", usage=USAGE, **part))
    await record(store, says("two", usage=USAGE.model_copy(update={"completion_tokens": 90}), **part))
    [call] = await store.read_log(SESSION, Call)
    assert (call.request_seq, call.completion_tokens) == (0, 90)


async def test_a_cursor_is_stored_with_the_messages_and_also_without_any(store: SessionStore) -> None:
    await record(store, says("hi"), cursor=Cursor(source="file:a", offset=10, state={"line": 1}))
    assert await store.get_cursor("file:a") == Cursor(source="file:a", offset=10, state={"line": 1})
    await record(store, cursor=Cursor(source="file:a", offset=20))
    assert await store.get_cursor("file:a") == Cursor(source="file:a", offset=20)
    assert await store.for_owner("another").get_cursor("file:a") is None


async def test_edits_come_in_the_same_transaction_and_see_what_was_stored(store: SessionStore) -> None:
    def shorten(counters: Counters, messages: tuple[Message, ...]) -> Edited:
        return [archiving(messages[-1].seq, text="…")], counters.model_copy(update={"parts": {Part.USER: 8}})

    appended = await record(store, says("x" * 40), edits=shorten)
    [edit] = await store.read_edits(SESSION)
    assert isinstance(edit, ArchiveEdit)
    assert (edit.edit_id, edit.seq, appended.session.counters.parts[Part.USER]) == (1, 0, 8)


async def test_nothing_is_stored_if_counting_fails(store: SessionStore) -> None:
    def fail_at_third(counters: Counters, message: NewMessage, seq: int) -> Counters:
        if seq == 2:
            raise ZeroDivisionError
        return count(counters, message, seq)

    with pytest.raises(ZeroDivisionError):
        await store.append_messages(SESSION, conversation(2), count=fail_at_third)
    assert await bodies(store) == []
    assert len((await record(store, *conversation(2))).messages) == 4


@pytest.mark.parametrize("key", ["\ud800", "a\udfffb", "\x00", "\x01a"])
async def test_a_key_that_is_no_text_is_known_again(store: SessionStore, key: str) -> None:
    for _ in range(2):
        await record(store, says("hi", key=key))
    assert [message.key for message in await store.read_messages(SESSION)] == [key]
