"""What append_messages stores, skips and returns; long batches in valid pieces; whole sessions copied."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage import append, sessions
from contextstash_storage.append import PIECE_SIZE
from contextstash_storage.errors import BadInputError, SessionNotFoundError, StoreBusyError
from contextstash_storage.records import (
    ArchiveEdit,
    Block,
    Call,
    Copied,
    Counters,
    Cursor,
    Edited,
    EditRecord,
    Event,
    Message,
    NewMessage,
    Part,
    Request,
    Session,
    Usage,
)
from contextstash_storage.sessions import HIDDEN_OWNER, hide, insert_session
from contextstash_storage.sqlite import look_at, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx, now
from tests.support.conversations import json_objects
from tests.support.effort import examples
from tests.support.stored_sessions import (
    OWNER,
    SESSION,
    SqliteStore,
    answers,
    archiving,
    bodies,
    calls,
    conversation,
    new_session,
    record,
    says,
)

USAGE = Usage(prompt_tokens=900, completion_tokens=40, cached_tokens=800)


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
    await record(store, *conversation(2), known_by=0)
    again = await record(store, *conversation(2), known_by=0)
    assert (again.messages, again.duplicates, again.first_seq, again.session.counters.messages) == ((), 4, 0, 4)
    grown = await record(store, *conversation(3)[2:], known_by=2)
    assert ([message.seq for message in grown.messages], grown.duplicates, grown.first_seq) == ([4, 5], 2, 2)
    assert await bodies(store) == [message.body for message in conversation(3)]


async def test_another_message_at_a_position_is_refused_and_named(store: SessionStore) -> None:
    await record(store, *conversation(2))
    with pytest.raises(BadInputError, match=r"At position 3 .* message 1 of this batch; .* is 4\. .* whole=true"):
        await record(store, conversation(2)[2], says("another reply"), known_by=2)
    for place in (5, -3):
        with pytest.raises(BadInputError, match=f"first_seq is {place}, but the next position of this session is 4"):
            await record(store, says("far away"), known_by=place)
    assert await bodies(store) == [message.body for message in conversation(2)]


async def test_a_message_whose_cache_breakpoint_moved_is_the_same_message(store: SessionStore) -> None:
    def asked(**mark: Any) -> NewMessage:
        return NewMessage(body={"role": "user", "content": [{"type": "text", "text": "hi", **mark}]}, role="user")

    await record(store, asked(cache_control={"type": "ephemeral"}))
    assert (await record(store, asked(), known_by=0)).duplicates == 1
    [body] = await bodies(store)
    assert body["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_a_batch_sent_again_with_its_id_is_stored_once_wherever_others_have_come(store: SessionStore) -> None:
    await record(store, says("first"))
    once = await record(store, *conversation(2), known_by="turn 1")
    await record(store, says("meanwhile"))
    again = await record(store, *conversation(2), known_by="turn 1")
    assert (once.first_seq, again.first_seq, again.messages, again.duplicates) == (1, 1, (), 4)
    other = await record(store, *conversation(2), known_by="turn 2")
    assert (other.first_seq, other.duplicates) == (6, 0)


async def test_the_id_of_another_batch_is_refused(store: SessionStore) -> None:
    await record(store, *conversation(2), known_by="turn 1")
    with pytest.raises(BadInputError, match="'turn 1' was used in this session for other messages, from position 0"):
        await record(store, *conversation(2)[:3], known_by="turn 1")
    await new_session(store, "two")
    assert (await record(store, says("hi"), known_by="turn 1", session_id="two")).duplicates == 0


async def test_a_message_with_a_key_is_known_by_its_key_alone(store: SessionStore) -> None:
    first = await record(store, says("yes", key="k1"), says("yes", key="k2"), says("yes", key="k2"))
    assert (len(first.messages), first.duplicates) == (2, 1)
    again = await record(store, says("no", key="k1"), says("yes", key="k3"))
    assert ([message.key for message in again.messages], again.duplicates) == (["k3"], 1)
    assert await store.find_key(SESSION, "k3") == 2
    assert await store.find_key(SESSION, "k4") is None


@pytest.mark.parametrize("known_by", [0, "turn 1"])
async def test_what_identifies_a_batch_goes_before_the_keys_of_its_messages(store: SessionStore, known_by: Any) -> None:
    messages = [says("yes", key="k1"), says("yes", key="k1"), says("no", key="k2")]
    first, again = [await record(store, *messages, known_by=known_by) for _ in range(2)]
    assert (len(first.messages), again.messages, again.duplicates, again.first_seq) == (3, (), 3, 0)
    assert await store.find_key(SESSION, "k2") == 2


async def test_outputs_get_their_position_and_a_handle_of_their_own(store: SessionStore) -> None:
    await record(store, *(answers(f"call_{place}") for place in range(3)))
    outputs = await store.read_outputs(SESSION)
    assert [(output.handle, output.seq) for output in outputs] == [("out_a", 0), ("out_a-2", 1), ("out_a-3", 2)]
    assert await store.find_output("out_a-2") == (SESSION, outputs[1])
    assert await store.find_handles("out_a-", 10) == ["out_a-2", "out_a-3"]


async def test_a_reply_in_several_messages_is_one_model_call_with_its_last_report(store: SessionStore) -> None:
    part: dict[str, Any] = {"role": "assistant", "group": "msg_1", "model": "gpt-5"}
    last = USAGE.model_copy(update={"completion_tokens": 90})
    await record(store, says("hi"))
    await store.append_request(SESSION, Request(messages=1, edits=0, appended=0, budget=9, counted=1, tokens=1))
    await record(store, says("thinking…", **part), says("one", usage=USAGE, **part))
    await record(store, says("two", usage=last, **part))
    [call], [request] = await store.read_log(SESSION, Call), await store.read_log(SESSION, Request)
    assert (call.purpose, call.model, call.request_seq) == ("agent", "gpt-5", 0)
    assert Usage(**call.model_dump(include=set(Usage.model_fields))) == request.usage == last


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


async def test_edits_behind_a_batch_of_many_pieces_see_all_its_messages(store: SessionStore) -> None:
    def shorten(counters: Counters, messages: tuple[Message, ...]) -> Edited:
        return [archiving(message.seq, text="…") for message in messages], counters

    await record(store, *(says("x" * PIECE_SIZE) for _ in range(3)), edits=shorten)
    assert [edit.seq for edit in await store.read_edits(SESSION) if isinstance(edit, ArchiveEdit)] == [0, 1, 2]


@pytest.mark.parametrize("key", ["\ud800", "a\udfffb", "\x00", "\x01a"])
async def test_a_key_that_is_no_text_is_known_again(store: SessionStore, key: str) -> None:
    for _ in range(2):
        await record(store, says("hi", key=key))
    assert [message.key for message in await store.read_messages(SESSION)] == [key]


HALF_A_PIECE = PIECE_SIZE // 2


def long_batch(rounds: int, name: str = "log") -> list[NewMessage]:
    """Calls and large results: each piece of it is one or two of these."""
    return [
        message
        for number in range(rounds)
        for message in (
            calls(f"call_{number}"),
            answers(f"call_{number}", f"{name} {number} ".ljust(HALF_A_PIECE, "x")),
        )
    ]


async def stored_after(store: SessionStore, messages: int) -> int:
    """How many messages are stored as soon as there are so many."""
    while True:
        count = (await store.get_session(SESSION)).counters.messages
        if count >= messages:
            return count
        await asyncio.sleep(0.002)


async def test_others_record_between_the_pieces_of_a_long_batch(store: SqliteStore, path: Path) -> None:
    async with await open_sqlite(path) as other:
        long = asyncio.create_task(record(store, *long_batch(8), known_by="long"))
        await stored_after(other, 2)
        await record(other, says("in between"))
        again = asyncio.create_task(record(other, *long_batch(8), known_by="long"))
        done = await long
        assert ((await again).duplicates > 0, (await again).first_seq) == (True, done.first_seq)
        expected = [message.body for message in long_batch(8)]
        held = await bodies(store)
        assert held.index({"role": "user", "content": "in between"}) < len(held) - 1
        assert [body for body in held if body["role"] != "user"] == expected


async def test_no_piece_parts_a_tool_call_from_its_result(store: SqliteStore, path: Path) -> None:
    seen = set()
    async with await open_sqlite(path) as other:
        long = asyncio.create_task(record(store, *long_batch(8)))
        while not long.done():
            seen.add((await other.get_session(SESSION)).counters.messages)
            await asyncio.sleep(0.001)
        await long
    assert len(seen) > 2
    assert {count % 2 for count in seen} == {0}


@pytest.mark.parametrize("mark", [{"known_by": "long"}, {"known_by": 0}])
async def test_a_batch_cut_off_in_the_middle_is_continued_and_never_doubled(
    path: Path, store: SqliteStore, mark: dict[str, Any]
) -> None:
    async with await open_sqlite(path) as first:
        cut_off = asyncio.create_task(record(first, *long_batch(8), **mark))
        stored = await stored_after(store, 2)
    await asyncio.gather(cut_off, return_exceptions=True)
    assert stored < 16
    again = await record(store, *long_batch(8), **mark)
    assert again.duplicates >= stored
    assert (again.first_seq, again.session.counters.messages) == (0, 16)
    assert await bodies(store) == [message.body for message in long_batch(8)]


async def test_the_cursor_is_stored_with_the_last_piece(store: SqliteStore, path: Path) -> None:
    async with await open_sqlite(path) as other:
        messages = [message.model_copy(update={"key": f"k{place}"}) for place, message in enumerate(long_batch(8))]
        cursor = Cursor(source="file:a", offset=10)
        long = asyncio.create_task(record(store, *messages, cursor=cursor))
        await stored_after(other, 2)
        assert await other.get_cursor("file:a") is None
        await long
        assert await other.get_cursor("file:a") == cursor


async def test_a_batch_that_fails_in_the_middle_says_how_much_is_recorded_and_how_to_go_on(path: Path) -> None:
    async with await open_sqlite(path, busy_seconds=0.05) as store:
        await new_session(store)
        long = asyncio.create_task(record(store, *long_batch(20)))
        await stored_after(store, 2)
        with closing(sqlite3.connect(path, isolation_level=None, timeout=5)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(
                StoreBusyError, match=r"of 40 messages were recorded, .* locked by another process"
            ) as told:
                await long
            other.execute("ROLLBACK")
        stored = (await store.get_session(SESSION)).counters.messages
        assert f"from number {stored} of the batch on with first_seq={stored}" in str(told.value)
        await record(store, *long_batch(20)[stored:], known_by=stored)
        assert await bodies(store) == [message.body for message in long_batch(20)]


@pytest.mark.parametrize("mark", [{}, {"known_by": "long"}, {"known_by": 0}])
@pytest.mark.parametrize("made_again", [False, True])
async def test_a_batch_ends_if_its_session_is_deleted_even_if_one_of_that_id_is_made_again(
    store: SqliteStore, path: Path, mark: dict[str, Any], made_again: bool
) -> None:
    other = await open_sqlite(path)
    begins = long_batch(1)
    long = asyncio.create_task(record(store, *long_batch(20), **mark))
    await stored_after(other, 2)

    def swap(tx: Tx) -> None:
        hide(tx, OWNER, [SESSION])
        if made_again:
            new = Session(session_id=SESSION, owner=OWNER, format="openai-chat", created_at=now(), updated_at=now())
            insert_session(tx, new)

    await other.database.write(swap)
    if made_again:
        await record(other, *begins)
    with pytest.raises(SessionNotFoundError, match=r"of 40 messages were recorded, .* went with the session") as told:
        await long
    assert "first_seq" not in str(told.value)
    if made_again:
        assert await bodies(other) == [message.body for message in begins]
    await other.close()


SMALL_PIECES = 3


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "ITEMS_AT_ONCE", SMALL_PIECES)


def session(messages: int = 11) -> Session:
    return Session(
        format="openai-chat",
        session_id="copied",
        owner=OWNER,
        created_at=now(),
        updated_at=now(),
        counters=Counters(messages=messages, view_messages=messages, edits=1),
    )


def items() -> list[Copied]:
    return [
        *conversation(5),
        answers("call_0", "a long output\n" * 300),
        archiving(10, edit_id=1, text="[archived]"),
        Event(kind="prune", tokens_before=2, tokens_after=1, reason="asked"),
        Call(purpose="summary", request_seq=1, prompt_tokens=2),
    ]


def owners(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as db:
        return [owner for (owner,) in db.execute("SELECT owner FROM sessions WHERE session_id <> 'one' ORDER BY owner")]


async def gone(path: Path) -> None:
    """Wait until nothing hidden is left."""
    async with asyncio.timeout(30):
        while set(owners(path)) - {OWNER}:  # noqa: ASYNC110 - another connection does it
            await asyncio.sleep(0.01)


async def test_a_session_is_copied_in_pieces_with_all_that_it_is_made_of(store: SessionStore) -> None:
    messages = [item for item in items() if isinstance(item, NewMessage)]
    assert await store.copy_session(session(), items())
    assert await bodies(store, "copied") == [message.body for message in messages]
    assert [output.seq for output in await store.read_outputs("copied")] == [10]
    assert len(await store.read_log("copied", Event)) == len(await store.read_log("copied", Call)) == 1
    assert {hit.seq for hit in await store.search("ask", session_ids=["copied"])} == {0, 2, 4, 6, 8}


async def test_no_reader_sees_a_session_before_it_is_there_to_its_end(store: SqliteStore, path: Path) -> None:
    seen: list[list[str]] = []
    loop = asyncio.get_running_loop()

    async def finds_nothing() -> None:
        with pytest.raises(SessionNotFoundError):
            await store.get_session("copied")
        assert await store.search("ask") == []
        assert look_at(path).sessions == 1

    def told() -> Iterator[Copied]:
        for item in items():
            asyncio.run_coroutine_threadsafe(finds_nothing(), loop).result()
            seen.append(owners(path))
            yield item
        asyncio.run_coroutine_threadsafe(finds_nothing(), loop).result()

    assert await store.copy_session(session(), told())
    assert len(await bodies(store, "copied")) == 11
    assert {hit.seq for hit in await store.search("ask")} == {0, 2, 4, 6, 8}
    assert seen[-1] == [HIDDEN_OWNER]
    assert owners(path) == [OWNER]


async def test_an_import_that_fails_midway_leaves_nothing(store: SqliteStore, path: Path) -> None:
    def broken() -> Iterator[Copied]:
        yield from items()
        raise ValueError("line 15 is broken")

    with pytest.raises(ValueError, match="line 15"):
        await store.copy_session(session(), broken())
    await gone(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM segments").fetchone() == (0,)


async def test_an_import_that_is_cancelled_as_it_becomes_visible_is_kept_whole(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, publish = asyncio.get_running_loop(), append._publish

    def cancelled(*given: Any, **named: Any) -> Any:
        loop.call_soon_threadsafe(copying.cancel)
        return publish(*given, **named)

    monkeypatch.setattr(append, "_publish", cancelled)
    copying = asyncio.create_task(store.copy_session(session(), items()))
    await asyncio.wait([copying])
    assert len(await bodies(store, "copied")) == 11


async def test_of_two_imports_under_one_name_the_first_to_end_is_kept_whole(path: Path) -> None:
    async with await open_sqlite(path) as one, await open_sqlite(path) as two:
        stored = await asyncio.gather(one.copy_session(session(), items()), two.copy_session(session(), items()))
        assert [copy is None for copy in stored].count(True) == 1
        assert len(await bodies(one, "copied")) == 11
        await gone(path)


KILLED = """
import asyncio, os, pathlib, signal, sys
from tests.storage.test_append import items, open_sqlite, session, append
append.ITEMS_AT_ONCE = 3
def told():
    yield from items()[:7]
    os.kill(os.getpid(), signal.SIGKILL)
async def main():
    await (await open_sqlite(pathlib.Path(sys.argv[1]))).copy_session(session(), told())
asyncio.run(main())
"""


def age(path: Path) -> None:
    """As if the copies of sessions had waited for their next piece for ten minutes."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET updated_at = updated_at - 600 WHERE owner = ?", (HIDDEN_OWNER,))


async def test_what_a_killed_process_had_imported_is_removed_by_an_opening_ten_minutes_later(path: Path) -> None:
    where = [str(Path(__file__).parents[2]), *sys.path]
    code = f"import sys; sys.path[:0] = {where!r}\n{KILLED}"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(path)], check=False)
    assert owners(path) == [HIDDEN_OWNER]
    age(path)
    async with await open_sqlite(path) as store:
        await gone(path)
        assert await store.copy_session(session(), items())
        assert len(await bodies(store, "copied")) == 11


async def test_an_opening_leaves_alone_what_a_living_process_is_importing(store: SqliteStore, path: Path) -> None:
    opened: list[SessionStore] = []

    async def open_another() -> None:
        opened.append(await open_sqlite(path))
        assert await opened[-1].deletions.finish()

    loop = asyncio.get_running_loop()

    def told() -> Iterator[Copied]:
        for item in items():
            if isinstance(item, EditRecord):
                asyncio.run_coroutine_threadsafe(open_another(), loop).result()
            yield item

    assert await store.copy_session(session(), told())
    assert len(await bodies(store, "copied")) == 11
    await opened[0].close()


@pytest.mark.parametrize("goes_on", [True, False])
async def test_an_import_that_waited_for_too_long_is_removed_and_says_so_unless_it_goes_on_before(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, goes_on: bool
) -> None:
    loop, remove_some = asyncio.get_running_loop(), sessions._remove_some

    def going_on(tx: Tx) -> bool:
        tx.execute("UPDATE sessions SET updated_at = updated_at + 600 WHERE owner = ?", (HIDDEN_OWNER,))
        return remove_some(tx)

    def told() -> Iterator[Copied]:
        yield from items()[:6]
        age(path)
        if goes_on:
            monkeypatch.setattr(sessions, "_remove_some", going_on)
        asyncio.run_coroutine_threadsafe(store.deletions.finish(), loop).result()
        yield from items()[6:]

    with nullcontext() if goes_on else pytest.raises(StoreBusyError, match="Import it again"):
        await store.copy_session(session(), told())
    await gone(path)
    assert owners(path) == [OWNER] * goes_on
    if goes_on:
        assert len(await bodies(store, "copied")) == 11
