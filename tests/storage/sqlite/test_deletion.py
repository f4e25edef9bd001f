"""Deleted data is invisible to every reader at once, and is soon removed from the database files."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage import sessions
from contextstash_storage import sqlite as sqlite_store
from contextstash_storage.errors import SessionNotFoundError
from contextstash_storage.records import Call, Cursor, Event, KeptState, NewMessage
from contextstash_storage.sessions import PAUSE_SECONDS
from contextstash_storage.sqlite import SqliteStore, look_at, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx
from tests.support.stored_sessions import (
    OWNER,
    answers,
    archiving,
    bodies,
    conversation,
    held,
    new_session,
    record,
    says,
)

SECRET = "zebra"
LONG = f"{SECRET} in a long text, {random.Random(2).randbytes(4_000).hex()}"
FILLER = "nothing special about this one, only long enough to fill a page or two of the file; " * 8


READ_FILES = "import pathlib, sys; [sys.stdout.buffer.write(pathlib.Path(name).read_bytes()) for name in sys.argv[1:]]"


def files(path: Path) -> bytes:
    """Every byte of the database's files, as another process reads them: to close a file here that SQLite has open
    here would take away its locks."""
    names = sorted(map(str, path.parent.glob(path.name + "*")))
    return subprocess.run([sys.executable, "-ISc", READ_FILES, *names], stdout=subprocess.PIPE, check=True).stdout


def marks(path: Path) -> dict[str, int]:
    """How often each kind of trace of a secret session is found."""
    found = files(path)
    traces = {"plain": SECRET.encode(), "in the index": SECRET.encode()[1:]}
    return {name: found.count(trace) for name, trace in traces.items() if trace in found}


def secret_messages(count: int = 30) -> list[NewMessage]:
    """Messages of short and long texts, with outputs."""
    short = [says(f"{SECRET} number {place} of the short ones") for place in range(count)]
    return [*short, says(LONG), answers("call_0", LONG + " as an output", handle=f"out_{SECRET}")]


async def fill(store: SessionStore, session_id: str) -> None:
    """A session that has the secret in every kind of row."""
    await new_session(store, session_id, title=f"{SECRET} title", agent=SECRET, settings={"note": SECRET})
    cursor = Cursor(source=f"/tmp/{SECRET}.jsonl", state={"last": SECRET})
    await record(store, *secret_messages(), session_id=session_id, cursor=cursor)
    edits = [archiving(place, text=f"{SECRET} edit {place}") for place in range(30)]
    await store.append_edits(session_id, edits, expected=0)
    await store.append_log(session_id, Event(kind="prune", tokens_before=2, tokens_after=1, reason=SECRET))
    await store.append_log(session_id, Call(purpose="summary", request_seq=1, prompt_tokens=2, error=SECRET))
    await store.put_note(session_id, KeptState(text=SECRET * 3))


async def others(store: SessionStore, count: int = 4) -> None:
    """Sessions of which nothing may be lost."""
    for number in range(count):
        await new_session(store, f"kept {number}")
        await record(store, *[says(f"{place} {FILLER}") for place in range(60)], session_id=f"kept {number}")


def packed_bodies(path: Path, session_id: str) -> list[bytes]:
    """The inner parts of a session's bodies as they are stored, of those that are not short."""
    with closing(sqlite3.connect(path)) as db:
        rows = db.execute(
            "SELECT contents FROM segments JOIN sessions USING (session)"
            " WHERE session_id = ? AND length(contents) > 80",
            (session_id,),
        )
        return [content[30:70] for (content,) in rows]


async def until(done: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)


def hidden_rows(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        [count] = db.execute("SELECT count(*) FROM sessions WHERE owner <> ?", (OWNER,)).fetchone()
        return int(count)


async def test_no_file_holds_a_trace_of_a_deleted_session(store: SqliteStore, path: Path) -> None:
    await others(store)
    await fill(store, "secret")
    stored = packed_bodies(path, "secret")
    assert set(marks(path)) == {"plain", "in the index"}
    assert [body for body in stored if body in files(path)] == stored != []
    assert await store.delete_session("secret")
    assert marks(path) == {}
    assert not [body for body in stored if body in files(path)]
    assert hidden_rows(path) == 0
    assert [len(await bodies(store, f"kept {number}")) for number in range(4)] == [60] * 4


async def test_a_session_that_is_hidden_while_another_is_removed_is_removed_next(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row is the only thing that says what of it is still there."""
    store = await open_sqlite(path)
    for name in ("first", "secret"):
        await fill(store, name)
    remove, hidden = sessions._remove_some, list[str]()

    def and_hide_another(tx: Tx) -> bool:
        is_more = remove(tx)
        if not is_more and not hidden:
            sessions.hide(tx, OWNER, ["secret"])
            hidden.append("secret")
        return is_more

    monkeypatch.setattr(sessions, "_remove_some", and_hide_another)
    assert await store.delete_session("first")
    assert hidden_rows(path) == 1
    await store.close()
    async with await open_sqlite(path):
        await until(lambda: hidden_rows(path) == 0)
        with closing(sqlite3.connect(path)) as db:
            left = [
                db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("segments", "outputs", "log")
            ]
        assert left == [0, 0, 0]


async def test_no_trace_is_left_while_other_processes_have_the_database_open(path: Path) -> None:
    async with await open_sqlite(path) as store, await open_sqlite(path) as second:
        await others(store)
        await fill(second, "secret")
        with held(path, "idle"), held(path, "idle"):
            await second.list_sessions()
            assert await store.delete_session("secret")
            assert marks(path) == {}
            assert len(await bodies(second, "kept 0")) == 60


async def test_a_reader_of_the_old_state_delays_the_overwriting_and_the_answer_says_so(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOG_SECONDS", 0.2)
    monkeypatch.setattr(sessions, "AGAIN_SECONDS", 0.1)
    await others(store)
    await fill(store, "secret")
    with held(path, "reading"):
        assert not await store.delete_session("secret")
        with pytest.raises(SessionNotFoundError):
            await store.get_session("secret")
        assert await store.search(SECRET) == []
        assert marks(path) != {}
        assert len((await record(store, says("recording goes on"))).messages) == 1
    await until(lambda: marks(path) == {} and hidden_rows(path) == 0)


async def test_what_one_process_could_not_overwrite_is_overwritten_by_the_next_that_opens_the_database(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOG_SECONDS", 0.1)
    store = await open_sqlite(path)
    await others(store)
    await fill(store, "secret")
    with held(path, "reading"):
        assert not await store.delete_session("secret")
        await store.close()
        assert marks(path) != {}
    async with await open_sqlite(path):
        await until(lambda: hidden_rows(path) == 0)
        assert marks(path) == {}


@pytest.mark.parametrize("seed", range(3))
async def test_no_trace_is_left_of_sessions_that_grew_side_by_side(path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = await open_sqlite(path)
    names = [f"session {number}" for number in range(6)]
    for name in names:
        await new_session(store, name)
    edits = dict.fromkeys(names, 0)
    for _ in range(250):
        name = rng.choice(names)
        text = f"trace of {name} " + rng.randbytes(rng.randrange(10, 900)).hex()[: rng.randrange(10, 900)]
        await record(store, says(text), session_id=name)
        edit = archiving(0, text=f"trace of {name} cut " + "x" * rng.randrange(300))
        await store.append_edits(name, [edit], expected=edits[name])
        edits[name] += 1
    for name in rng.sample(names, 4):
        stored = packed_bodies(path, name)
        assert len(stored) > 20
        assert await store.delete_session(name)
        left = files(path)
        assert f"trace of {name}".encode() not in left
        assert not [body for body in stored if body in left]
    await store.close()


async def test_a_deletion_that_is_cancelled_goes_on_unseen(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PIECE_SECONDS", 0.0)  # else it may end before it is looked at
    await fill(store, "secret")
    deleting = asyncio.create_task(store.delete_session("secret"))
    await until(lambda: hidden_rows(path) == 1)
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    await new_session(store, "secret")
    await record(store, *conversation(2), session_id="secret")
    await until(lambda: hidden_rows(path) == 0)
    assert len(await bodies(store, "secret")) == 4
    assert marks(path) == {}


async def test_a_long_deletion_leaves_the_write_lock_to_others_after_each_piece(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(sessions, "ROWS_AT_ONCE", 10)
    remove, left = sessions._remove_some, list[int]()

    def look_and_remove(tx: Tx) -> bool:
        with closing(sqlite3.connect(path)) as db:  # it sees what the pieces before have committed
            counts = [db.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in sessions._PARTS]
        left.append(sum(counts))
        return remove(tx)

    await fill(store, "secret")
    monkeypatch.setattr(sessions, "_remove_some", look_and_remove)
    assert await store.delete_session("secret")
    assert len(left) > 10
    assert all(0 < before - after <= 10 for before, after in pairwise(left))


@pytest.mark.parametrize("pieces", [1, 3, 5])
async def test_a_deletion_that_stops_midway_is_finished_by_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(sessions, "PIECE_SECONDS", 0.0)
    async with await open_sqlite(path) as store:
        await others(store, 1)
        await fill(store, "secret")
        deleting = asyncio.create_task(store.delete_session("secret"))
        await asyncio.sleep(pieces * PAUSE_SECONDS)
    assert await deleting is False
    assert hidden_rows(path) == 1
    assert look_at(path).sessions == 1
    async with await open_sqlite(path) as again:
        assert await again.search(SECRET) == []
        await until(lambda: hidden_rows(path) == 0)
        assert marks(path) == {}
