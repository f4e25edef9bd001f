"""A database of another version is refused with what to do, and left as it is."""

from __future__ import annotations

import asyncio
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import StoreError, StoreVersionError
from contextstash_storage.sqlite import open_sqlite
from contextstash_storage.transaction import VERSION
from tests.support.stored_sessions import SESSION, new_session, record, says


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION + 1, "Upgrade contextstash"), (VERSION - 1, "contextstash export"), (1, "import")]
)
async def test_a_database_of_another_version_is_refused_and_left_unchanged(
    path: Path, version: int, advice: str
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreVersionError, match=advice):
        await open_sqlite(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (version,)
        assert other.execute("SELECT * FROM sqlite_schema").fetchall() == []


async def test_a_process_that_is_open_while_a_newer_one_changes_the_tables_refuses_clearly_and_writes_nothing(
    path: Path,
) -> None:
    async with await open_sqlite(path) as store:
        await new_session(store)
        await record(store, says("before"))
        with closing(sqlite3.connect(path, isolation_level=None)) as newer:
            newer.execute(f"PRAGMA user_version = {VERSION + 1}")
        for work in (
            lambda: record(store, says("after")),
            lambda: store.read_messages(SESSION),
            lambda: store.search("before"),
            lambda: store.update_session(SESSION, title="x"),
            lambda: store.delete_session(SESSION),
        ):
            with pytest.raises(StoreVersionError, match="restart this program"):
                await work()
    with closing(sqlite3.connect(path)) as newer:
        assert newer.execute("SELECT sum(messages) FROM segments").fetchone() == (1,)


def test_a_file_that_is_not_a_database_is_refused_and_left_unchanged(path: Path) -> None:
    content = b"These are notes, not a database. " * 100
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no SQLite database"):
        asyncio.run(open_sqlite(path))
    assert path.read_bytes() == content
