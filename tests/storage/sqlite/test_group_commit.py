"""Recordings that wait for the same lock are committed together, and each keeps its own outcome."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from contextstash.stash import Stash
from contextstash_storage.errors import ContextstashError
from contextstash_storage.sqlite import SqliteStore, open_sqlite
from contextstash_storage.transaction import Tx

CALLERS = 12


def said(text: str) -> list[dict[str, object]]:
    return [{"role": "user", "content": text}]


async def commits(store: SqliteStore) -> list[str]:
    """The commits of the store's writer from now on."""
    seen: list[str] = []

    def note(statement: str) -> None:
        if statement == "COMMIT":
            seen.append(statement)

    await store.database.writer.run(lambda db: db.set_trace_callback(note))
    return seen


async def recorded(stash: Stash, number: int) -> list[object]:
    page = await stash.read_messages(f"s{number}")
    return [message.message["content"] for message in page.messages]


async def test_recordings_at_the_same_time_take_fewer_commits_than_they_are(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "db")
    async with Stash(store) as stash:
        for number in range(CALLERS):
            await stash.record_messages(said("first"), session_id=f"s{number}", format="openai-chat")
        seen = await commits(store)
        await asyncio.gather(*(stash.record_messages(said(f"{n}"), session_id=f"s{n}") for n in range(CALLERS)))
        assert 0 < len(seen) < CALLERS
        assert [await recorded(stash, n) for n in range(CALLERS)] == [["first", f"{n}"] for n in range(CALLERS)]


async def test_one_that_fails_leaves_the_others_committed(tmp_path: Path) -> None:
    async with Stash(await open_sqlite(tmp_path / "db")) as stash:
        for number in range(CALLERS):
            await stash.record_messages(said("first"), session_id=f"s{number}", format="openai-chat")
        calls = [
            stash.record_messages(said(f"{n}"), session_id=f"s{n}", first_seq=7 if n == 3 else None)
            for n in range(CALLERS)
        ]
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, BaseException)] == [3]
        assert isinstance(outcomes[3], ContextstashError)
        expected = [["first"] if n == 3 else ["first", f"{n}"] for n in range(CALLERS)]
        assert [await recorded(stash, n) for n in range(CALLERS)] == expected


async def test_a_cancelled_caller_does_not_keep_the_others_from_their_outcome(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "db")
    seen: list[str] = []

    def work_of(name: str) -> Callable[[Tx], None]:
        return lambda tx: seen.append(name)

    calls = [asyncio.create_task(store.database.write_together(work_of(f"{n}"))) for n in range(4)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.gather(calls[1], calls[3])
    assert {"1", "3"} <= set(seen)
    with pytest.raises(asyncio.CancelledError):
        await calls[2]
    await store.close()


async def test_other_writes_get_their_turn_while_recordings_keep_coming(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "db")
    database, ended = store.database, False

    async def record() -> int:
        count = 0
        while not ended:
            await database.write_together(lambda tx: tx.rows("SELECT count(*) FROM sessions"))
            count += 1
        return count

    recorders = [asyncio.create_task(record()) for _ in range(40)]
    for _ in range(5):
        await asyncio.wait_for(database.write(lambda tx: tx.rows("SELECT 1")), 10)
    ended = True
    assert min(await asyncio.gather(*recorders)) > 0
    await store.close()
