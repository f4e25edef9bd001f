"""Migrations: applied in order, each once and atomically; the result equals a new database."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from contextstash_storage.errors import StoreError, StoreVersionError
from contextstash_storage.sqlite import open_sqlite
from contextstash_storage.sqlite.migrations import migrate, migrations
from tests.support.stored_sessions import SESSION, new_session, record, says

KNOWN = migrations()
NEWEST = KNOWN[-1][0]
SAMPLE = (
    "INSERT INTO sessions (session_id, owner, settings, created_at, updated_at, counters)"
    " VALUES ('s', 'local', '{}', '2026-01-01T00:00:00+00:00', '2026-01-01T00:00:00+00:00', '{}')"
)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as opened:
        yield opened


def schema(db: sqlite3.Connection) -> list[tuple[str, str, str]]:
    return db.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


def columns(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    tables = [name for kind, name, _ in schema(db) if kind == "table"]
    return {name: sorted(row[1:] for row in db.execute(f"PRAGMA table_info({name})")) for name in tables}


def version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def test_migrations_are_numbered_without_gaps() -> None:
    assert [number for number, _ in KNOWN] == list(range(1, len(KNOWN) + 1))


@pytest.mark.parametrize("start", range(len(KNOWN)))
def test_a_database_of_any_older_version_becomes_what_a_fresh_one_is(db: sqlite3.Connection, start: int) -> None:
    if start:
        migrate(db, KNOWN[:start])
        db.execute(SAMPLE)
    migrate(db)
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as fresh:
        migrate(fresh)
        assert (columns(db), version(db)) == (columns(fresh), NEWEST)
        assert [(kind, name) for kind, name, _ in schema(db)] == [(kind, name) for kind, name, _ in schema(fresh)]


def test_migrating_again_changes_nothing(db: sqlite3.Connection) -> None:
    migrate(db)
    before = schema(db)
    migrate(db)
    assert schema(db) == before


def test_a_later_migration_is_added_to_what_is_there(db: sqlite3.Connection) -> None:
    migrate(db)
    db.execute(SAMPLE)
    migrate(db, [*KNOWN, (NEWEST + 1, "ALTER TABLE sessions ADD COLUMN pinned INTEGER DEFAULT 0;\n")])
    assert db.execute("SELECT session_id, pinned FROM sessions").fetchall() == [("s", 0)]
    assert version(db) == NEWEST + 1


def test_a_migration_that_fails_leaves_the_database_as_it_was(db: sqlite3.Connection) -> None:
    migrate(db)
    before = schema(db)
    with pytest.raises(sqlite3.OperationalError):
        migrate(db, [*KNOWN, (NEWEST + 1, "CREATE TABLE more (x);\nCREATE TABLE messages (x);\n")])
    assert (schema(db), version(db)) == (before, NEWEST)


async def test_a_database_of_a_newer_contextstash_is_refused_and_left_unchanged(path: Path) -> None:
    with closing(sqlite3.connect(path)) as newer:
        newer.execute(f"PRAGMA user_version = {NEWEST + 1}")
    with pytest.raises(StoreVersionError, match="Upgrade contextstash"):
        await open_sqlite(path)
    with closing(sqlite3.connect(path)) as newer:
        assert (version(newer), schema(newer)) == (NEWEST + 1, [])


async def test_a_process_that_is_open_while_a_newer_one_migrates_refuses_clearly_and_writes_nothing(path: Path) -> None:
    store = await open_sqlite(path)
    await new_session(store)
    await record(store, says("before"))
    with closing(sqlite3.connect(path, isolation_level=None)) as newer:
        migrate(newer, [*KNOWN, (NEWEST + 1, "ALTER TABLE messages RENAME COLUMN body TO packed;\n")])
    for work in (
        lambda: record(store, says("after")),
        lambda: store.read_messages(SESSION),
        lambda: store.search("before"),
        lambda: store.update_session(SESSION, title="x"),
        lambda: store.delete_session(SESSION),
    ):
        with pytest.raises(StoreVersionError, match="restart this program"):
            await work()
    await store.close()
    with closing(sqlite3.connect(path)) as newer:
        assert newer.execute("SELECT count(*) FROM messages").fetchone() == (1,)


def test_a_file_that_is_not_a_database_is_refused_and_left_unchanged(path: Path) -> None:
    content = b"These are notes, not a database. " * 100
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no SQLite database"):
        asyncio.run(open_sqlite(path))
    assert path.read_bytes() == content


async def test_a_folder_in_place_of_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be"):
        await open_sqlite(tmp_path)


async def test_a_session_stored_without_a_format_gets_one(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as older:
        migrate(older, KNOWN[:2])
        older.execute(SAMPLE)
    store = await open_sqlite(path)
    assert (await store.get_session("s")).format == "openai-chat"
    await store.close()
