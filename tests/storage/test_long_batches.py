"""Long batches: stored in valid pieces that other writers come between, continued after a crash, never doubled."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.append import PIECE_SIZE
from contextstash_storage.errors import SessionNotFoundError, StoreBusyError
from contextstash_storage.records import Cursor, NewMessage, Session
from contextstash_storage.sessions import hide, insert_session
from contextstash_storage.sqlite import SqliteStore, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx, now
from tests.support.stored_sessions import OWNER, SESSION, answers, bodies, calls, new_session, record, says

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
        long = asyncio.create_task(record(store, *long_batch(8), batch_id="long"))
        await stored_after(other, 2)
        await record(other, says("in between"))
        again = asyncio.create_task(record(other, *long_batch(8), batch_id="long"))
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


@pytest.mark.parametrize("mark", [{"batch_id": "long"}, {"first_seq": 0}])
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
        await record(store, *long_batch(20)[stored:], first_seq=stored)
        assert await bodies(store) == [message.body for message in long_batch(20)]


@pytest.mark.parametrize("mark", [{}, {"batch_id": "long"}, {"first_seq": 0}])
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
