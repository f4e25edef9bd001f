"""A copied session is stored in invisible pieces, and becomes visible as a whole or not at all."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage import append, sessions
from contextstash_storage.errors import SessionNotFoundError, StoreBusyError
from contextstash_storage.records import Call, Copied, Counters, EditRecord, Event, NewMessage, Session
from contextstash_storage.search import SearchFilter
from contextstash_storage.sessions import HIDDEN_OWNER, PAUSE_SECONDS
from contextstash_storage.sqlite import SqliteStore, SqliteTx, look_at, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import now
from tests.support.stored_sessions import OWNER, answers, archiving, bodies, conversation, record, says

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
    assert {hit.seq for hit in await store.search("ask", SearchFilter(session_ids=["copied"]))} == {0, 2, 4, 6, 8}


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

    async def finds_all_or_nothing() -> None:
        if await found(store.get_session("copied")):
            assert len(await bodies(store, "copied")) == 11
            assert {hit.seq for hit in await store.search("ask")} == {0, 2, 4, 6, 8}
            assert look_at(path).sessions == 2

    copied = asyncio.create_task(store.copy_session(session(), told()))
    while not copied.done():
        await finds_all_or_nothing()
        await asyncio.wait([copied], timeout=PAUSE_SECONDS)
    assert await copied
    await finds_all_or_nothing()
    assert seen[-1] == [HIDDEN_OWNER]
    assert owners(path) == [OWNER]


async def found(reading: Awaitable[object]) -> bool:
    """Whether a session was found."""
    try:
        await reading
    except SessionNotFoundError:
        return False
    return True


async def test_others_record_while_a_long_session_is_imported(store: SqliteStore, path: Path) -> None:
    other = await open_sqlite(path, busy_seconds=1.0)
    loop = asyncio.get_running_loop()
    stored: list[int] = []

    async def another_records() -> None:
        await record(other, says(f"meanwhile {len(stored)}"))
        with closing(sqlite3.connect(path)) as db:
            text = "SELECT total(messages) FROM segments JOIN sessions USING (session) WHERE owner = ?"
            stored.extend(count for (count,) in db.execute(text, (HIDDEN_OWNER,)))

    def told() -> Iterator[Copied]:
        for place in range(3 * SMALL_PIECES):
            asyncio.run_coroutine_threadsafe(another_records(), loop).result()
            yield says(f"message {place}")

    assert await store.copy_session(session(9), told())
    assert stored == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    assert len(await bodies(other)) == 9
    await other.close()


async def test_an_import_that_fails_midway_leaves_nothing(store: SqliteStore, path: Path) -> None:
    def broken() -> Iterator[Copied]:
        yield from items()
        raise ValueError("line 15 is broken")

    with pytest.raises(ValueError, match="line 15"):
        await store.copy_session(session(), broken())
    await gone(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM segments").fetchone() == (0,)


async def test_of_two_imports_under_one_name_the_first_to_end_is_kept_whole(path: Path) -> None:
    async with await open_sqlite(path) as one, await open_sqlite(path) as two:
        stored = await asyncio.gather(one.copy_session(session(), items()), two.copy_session(session(), items()))
        assert [copy is None for copy in stored].count(True) == 1
        assert len(await bodies(one, "copied")) == 11
        await gone(path)


KILLED = """
import asyncio, os, pathlib, signal, sys
from tests.storage.test_session_copy import items, open_sqlite, session, append
append.ITEMS_AT_ONCE = 3
def told():
    yield from items()[:7]
    os.kill(os.getpid(), signal.SIGKILL)
async def main():
    await (await open_sqlite(pathlib.Path(sys.argv[1]))).copy_session(session(), told())
asyncio.run(main())
"""


async def test_what_a_killed_process_had_imported_is_removed_by_the_next_opening(path: Path) -> None:
    where = [str(Path(__file__).parents[2]), *sys.path]
    code = f"import sys; sys.path[:0] = {where!r}\n{KILLED}"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", code, str(path)], check=False)
    assert owners(path) == [HIDDEN_OWNER]
    async with await open_sqlite(path) as store:
        await gone(path)
        assert await store.copy_session(session(), items())
        assert len(await bodies(store, "copied")) == 11


async def test_an_opening_leaves_alone_what_a_living_process_is_importing(store: SqliteStore, path: Path) -> None:
    opened: list[SqliteStore] = []

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


async def test_an_import_that_was_removed_as_abandoned_says_so(store: SqliteStore, path: Path) -> None:
    def told() -> Iterator[Copied]:
        yield from items()[:6]
        with closing(sqlite3.connect(path)) as db:
            db.execute("UPDATE notes SET begins = begins - 600, ends = ends - 600")
            sessions._remove_some(SqliteTx(db))
            db.commit()
        yield from items()[6:]

    with pytest.raises(StoreBusyError, match="Import it again"):
        await store.copy_session(session(), told())
    await gone(path)
    assert owners(path) == []
