"""Sessions: created once, listed, summed up, changed, and deleted without a trace in the files."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage import sessions
from contextstash_storage import sqlite as sqlite_store
from contextstash_storage.errors import HandleNotFoundError, SessionNotFoundError
from contextstash_storage.notes import KEPT_DAYS
from contextstash_storage.records import Call, Cursor, Event, KeptState, NewMessage, ProxiedSession
from contextstash_storage.sessions import PAUSE_SECONDS
from contextstash_storage.sqlite import look_at, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx, only
from tests.support.stored_sessions import (
    OWNER,
    SESSION,
    SqliteStore,
    answers,
    archiving,
    bodies,
    conversation,
    held,
    new_session,
    record,
    says,
)

BIG = "shared output, many times\n" * 200


async def test_a_session_is_created_once(store: SessionStore) -> None:
    first = await new_session(store, "two", title="first", settings={"window": 1000})
    assert await new_session(store, "two", title="second") == first
    assert await store.get_session("two") == first


async def test_ids_are_completed_the_whole_one_first_and_sub_agents_last(store: SessionStore) -> None:
    await new_session(store, "one%more")
    await new_session(store, "one.sub", parent_session_id="one")
    assert await store.find_session_ids("one", 1) == ["one"]
    assert await store.find_session_ids("on", 2) == ["one%more", "one"]
    assert await store.find_session_ids("one%", 10) == ["one%more"]


async def fill(store: SessionStore, session_id: str) -> None:
    await record(
        store,
        says("find the needle", key="k"),
        answers("call_0", BIG, handle=f"out_{session_id}"),
        session_id=session_id,
        cursor=Cursor(source=session_id),
    )
    await store.change_session(session_id, edits=[archiving(1)], expected=0)
    await store.append_log(session_id, Event(kind="prune", tokens_before=2, tokens_after=1, reason="asked"))
    await store.append_log(session_id, Call(purpose="summary", request_seq=1, prompt_tokens=2))


NAMES = ("segments", "keys", "outputs", "log", "entries", "words")


async def table_sizes(store: SessionStore) -> dict[str, int]:
    """The rows of each table, but those that say how a deleted session is recognized."""

    def count(tx: Tx) -> dict[str, int]:
        counts = {name: int(only(tx.rows(f"SELECT count(*) FROM {name}"))) for name in NAMES}
        return counts | {"notes": int(only(tx.rows("SELECT count(*) FROM notes WHERE kind <> 'deleted'")))}

    return await store.database.read(count)


async def test_a_deleted_session_leaves_nothing_behind(store: SessionStore) -> None:
    await new_session(store, "two")
    await fill(store, SESSION)
    alone = await table_sizes(store)
    await fill(store, "two")
    await store.delete_session("two")
    assert await table_sizes(store) == alone
    with pytest.raises(SessionNotFoundError):
        await store.get_session("two")
    with pytest.raises(HandleNotFoundError, match="out_two"):
        await store.find_output("out_two")
    assert await store.get_cursor("two") is None
    assert {hit.session_id for hit in await store.search("needle")} == {SESSION}


async def test_a_deleted_session_is_recognized_by_hashes(store: SessionStore) -> None:
    await store.put_note(SESSION, ProxiedSession(mark="ab", length=2))
    await new_session(store, "two")
    await store.delete_session("two")
    await store.delete_session(SESSION)
    other, deleted = await store.deleted_sessions()
    assert other.is_continued_by("two", [])
    assert not other.is_continued_by(SESSION, ["x", "ab"])
    assert deleted.is_continued_by(SESSION, [])
    assert deleted.is_continued_by("other", ["x", "ab", "cd"])
    assert not deleted.is_continued_by("other", ["ab", "cd"])
    assert not {SESSION, "ab"} & set(deleted.model_dump().values())


async def test_a_deleted_session_is_forgotten_after_its_time_whatever_its_client_does(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_at = time.time()
    await store.delete_session(SESSION)
    for days in (KEPT_DAYS - 1, KEPT_DAYS + 1):
        monkeypatch.setattr(time, "time", lambda days=days: deleted_at + days * 86_400)
        known = await store.deleted_sessions()
        assert len(known) == (days < KEPT_DAYS)
        await store.copy_deleted([each.model_copy(update={"mark": f"{days}"}) for each in known])


async def test_the_children_of_a_deleted_session_live_on_without_a_parent(store: SessionStore) -> None:
    await new_session(store, "child", parent_session_id=SESSION)
    assert [child.session_id for child in await store.list_sessions(parent=SESSION)] == ["child"]
    await store.delete_session(SESSION)
    assert (await store.get_session("child")).parent_session_id is None


def at(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=UTC)


async def three_sessions(store: SessionStore) -> None:
    """Sessions whose last messages are older the later they were recorded, and an empty one."""
    await record(store, says("new", created_at=at(9)))
    for name, day in (("older", 5), ("oldest", 2)):
        await new_session(store, name)
        await record(store, says("later", created_at=at(1)), says(name, created_at=at(day)), session_id=name)
    await new_session(store, "empty")


@pytest.mark.parametrize(
    ("by_message", "names"),
    [(False, ["empty", "oldest", "older", SESSION]), (True, ["empty", SESSION, "older", "oldest"])],
)
async def test_sessions_are_listed_by_last_change_or_last_message_a_page_at_a_time(
    store: SessionStore, by_message: bool, names: list[str]
) -> None:
    await three_sessions(store)
    page = await store.list_sessions(limit=2, by_message=by_message)
    rest = await store.list_sessions(limit=9, by_message=by_message, before=page[-1].session_id)
    assert [each.session_id for each in page + rest] == names
    times = {"empty": None, SESSION: at(9), "older": at(5), "oldest": at(2)}
    assert {each.session_id: each.last_message_at for each in page + rest} == times
    assert await store.for_owner("another").list_sessions() == []


SECRET = "zebra"
LONG = f"{SECRET} in a long text, {random.Random(2).randbytes(4_000).hex()}"
FILLER = "nothing special about this one, only long enough to fill_secret a page or two of the file; " * 8


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


async def fill_secret(store: SessionStore, session_id: str) -> None:
    """A session that has the secret in every kind of row."""
    await new_session(store, session_id, title=f"{SECRET} title", agent=SECRET, settings={"note": SECRET})
    cursor = Cursor(source=f"/tmp/{SECRET}.jsonl", state={"last": SECRET})
    await record(store, *secret_messages(), session_id=session_id, cursor=cursor)
    edits = [archiving(place, text=f"{SECRET} edit {place}") for place in range(30)]
    await store.change_session(session_id, edits=edits, expected=0)
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
    await fill_secret(store, "secret")
    stored = packed_bodies(path, "secret")
    assert set(marks(path)) == {"plain", "in the index"}
    assert [body for body in stored if body in files(path)] == stored != []
    assert await store.delete_session("secret")
    assert marks(path) == {}
    assert not [body for body in stored if body in files(path)]
    assert hidden_rows(path) == 0
    assert [len(await bodies(store, f"kept {number}")) for number in range(4)] == [60] * 4


async def test_a_reader_of_the_old_state_delays_the_overwriting_and_the_answer_says_so(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_store, "LOG_SECONDS", 0.2)
    monkeypatch.setattr(sessions, "AGAIN_SECONDS", 0.1)
    await others(store)
    await fill_secret(store, "secret")
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
    await fill_secret(store, "secret")
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
        await store.change_session(name, edits=[edit], expected=edits[name])
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
    await fill_secret(store, "secret")
    deleting = asyncio.create_task(store.delete_session("secret"))
    await until(lambda: hidden_rows(path) == 1)
    deleting.cancel()
    await asyncio.gather(deleting, return_exceptions=True)
    await new_session(store, "secret")
    await record(store, *conversation(2), session_id="secret")
    await until(lambda: hidden_rows(path) == 0)
    assert len(await bodies(store, "secret")) == 4
    assert marks(path) == {}


@pytest.mark.parametrize("pieces", [1, 3, 5])
async def test_a_deletion_that_stops_midway_is_finished_by_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(sessions, "PIECE_SECONDS", 0.0)
    async with await open_sqlite(path) as store:
        await others(store, 1)
        await fill_secret(store, "secret")
        deleting = asyncio.create_task(store.delete_session("secret"))
        await asyncio.sleep(pieces * PAUSE_SECONDS)
    assert await deleting is False
    assert hidden_rows(path) == 1
    assert look_at(path).sessions == 1
    async with await open_sqlite(path) as again:
        assert await again.search(SECRET) == []
        await until(lambda: hidden_rows(path) == 0)
        assert marks(path) == {}
