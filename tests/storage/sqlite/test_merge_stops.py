"""After a large deletion the search index is merged in many small steps."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contextstash_storage.sqlite import deletion, merge_stops
from contextstash_storage.sqlite.merge_stops import (
    insert_stops,
    remove_stops,
    resume_automatic_merge,
    stop_words,
    suspend_automatic_merge,
)
from contextstash_storage.sqlite.migrations import migrate
from contextstash_storage.sqlite.search_index import merge_index
from contextstash_storage.sqlite.store import open_sqlite
from tests.support.stored_sessions import new_session, record, says

LETTERS = random.Random(3).randbytes(60_000)
WORDS = [LETTERS[n : n + 3].hex() for n in range(0, 60_000, 3)]


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as db:
        migrate(db)
        yield db


def text(seed: int, words: int = 4_000) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def merge_steps(db: sqlite3.Connection, pages: int) -> int:
    merge_index(db, -pages)
    steps = 1
    while merge_index(db, pages):
        steps += 1
    return steps


def parts(db: sqlite3.Connection) -> set[int]:
    """The numbers of the segments of which the index consists."""
    return {segment for (segment,) in db.execute("SELECT DISTINCT segid FROM search_pieces_idx")}


def add_and_delete(db: sqlite3.Connection, count: int) -> None:
    columns = "(rowid, place, call, text) VALUES"
    for row in range(count):
        db.execute(f"INSERT INTO search_pieces {columns} (?, 's1', '', ?)", (row, text(row)))
    db.execute(f"INSERT INTO search_pieces {columns} (?, 's2', '', 'kept words')", (count,))
    deleted = "(search_pieces, rowid, place, call, text) VALUES ('delete', ?, 's1', '', ?)"
    for row in range(count):
        db.execute(f"INSERT INTO search_pieces {deleted}", (row, text(row)))


def test_merging_stops_at_every_stop_and_leaves_no_word_of_what_was_deleted(db: sqlite3.Connection) -> None:
    add_and_delete(db, 30)
    words = stop_words(db)
    [pages] = db.execute("SELECT count(*) FROM search_pieces_idx").fetchone()
    assert len(words) >= pages // merge_stops.STOP_PAGES - 1 > 4
    while words:
        del words[: insert_stops(db, words, time.monotonic())]
    [stops] = db.execute("SELECT count(*) FROM search_stops").fetchone()
    assert merge_steps(db, merge_stops.MERGED_PAGES) >= stops
    while remove_stops(db, time.monotonic() + 0.01):
        pass
    assert merge_steps(db, deletion.MERGED_PAGES) >= 1
    blocks = b"".join(block for (block,) in db.execute("SELECT block FROM search_pieces_data"))
    assert len(blocks) < 1_000
    assert db.execute("SELECT rowid FROM search_pieces WHERE search_pieces MATCH 'kept'").fetchall() == [(30,)]
    assert db.execute("SELECT count(*) FROM search_stops").fetchone() == (0,)


def test_a_stop_shows_no_more_of_a_word_than_its_place_in_the_order_needs(db: sqlite3.Connection) -> None:
    secrets = [f"secret{random.Random(n).getrandbits(64):016x}" for n in range(20_000)]
    for row in range(0, len(secrets), 500):
        db.execute(
            "INSERT INTO search_pieces (rowid, place, call, text) VALUES (?, 's1', '', ?)",
            (row, " ".join(secrets[row : row + 500])),
        )
    merge_steps(db, 64)
    words = stop_words(db)
    assert words == sorted(set(words))
    assert words
    assert max(map(len, words)) <= len("secret") + 3


def test_no_commit_merges_the_index_while_stops_are_inserted_and_removed(db: sqlite3.Connection) -> None:
    add_and_delete(db, 20)
    suspend_automatic_merge(db)
    former = parts(db)
    words = stop_words(db)[:2] * 10
    commits = 0
    while words:
        del words[: insert_stops(db, words, time.monotonic())]
        commits += 1
    while remove_stops(db, time.monotonic()):
        commits += 1
    assert commits == 40
    assert former < parts(db)
    assert len(parts(db) - former) == 40
    resume_automatic_merge(db)
    db.execute("INSERT INTO search_pieces (rowid, place, call, text) VALUES (1000, 's1', '', ?)", (text(0),))
    assert len(parts(db)) < 20


@pytest.mark.parametrize("pieces", [3, 30, 100])
async def test_a_deletion_with_stops_is_finished_by_the_next_opening(
    path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int
) -> None:
    monkeypatch.setattr(merge_stops, "STOP_PAGES", 1)
    monkeypatch.setattr(merge_stops, "MIN_CHARACTERS", 1)
    monkeypatch.setattr(deletion, "PIECE_SECONDS", 0.0)
    monkeypatch.setattr(deletion, "PAUSE_SECONDS", 0.0)
    store = await open_sqlite(path)
    for session_id, seed in (("kept", 100), ("deleted", 200)):
        await new_session(store, session_id)
        await record(store, *[says(text(seed + n, 300)) for n in range(20)], session_id=session_id)
    deleting = asyncio.create_task(store.delete_session("deleted"))
    for _ in range(pieces):
        await asyncio.sleep(0.001)
    await store.close()
    await deleting
    again = await open_sqlite(path)
    with closing(sqlite3.connect(path)) as db:
        for _ in range(6_000):
            if db.execute("SELECT count(*) FROM sessions").fetchone() == (1,):
                break
            await asyncio.sleep(0.01)
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (1,)
        assert db.execute("SELECT count(*) FROM search_stops").fetchone() == (0,)
        assert db.execute("SELECT count(*) FROM search_entries").fetchone() == (20,)
        suspended = "SELECT count(*) FROM search_pieces_config WHERE (k, v) IN (VALUES ('automerge', 0))"
        assert db.execute(suspended).fetchone() == (0,)
    word = text(100, 300).split()[0]
    assert {hit.session_id for hit in await again.search(word)} == {"kept"}
    assert await again.delete_session("kept")
    await again.close()
