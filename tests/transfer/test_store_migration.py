"""Copying all sessions of a database into another."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash import transfer
from contextstash.queries.sessions import all_sessions
from contextstash.session.access import Access
from contextstash_storage.records import Session
from contextstash_storage.sqlite import SqliteStore, open_sqlite
from tests.support.stored_sessions import bodies, conversation, new_session, record


async def fill(store: SqliteStore) -> None:
    for name in ("one", "two", "three"):
        await new_session(store, name)
        await record(store, *conversation(5), session_id=name)


async def test_a_damaged_session_is_named_and_all_others_are_copied(tmp_path: Path) -> None:
    async with await open_sqlite(tmp_path / "source.db") as source:
        await fill(source)
    with closing(sqlite3.connect(tmp_path / "source.db")) as db, db:
        db.execute("UPDATE segments SET contents = x'00' WHERE session = 2")
    async with (
        await open_sqlite(tmp_path / "source.db") as source,
        await open_sqlite(tmp_path / "target.db") as target,
    ):
        done = await transfer.migrate_store(source, target)
        assert done.copied == 2
        assert list(done.failed) == ["two"]
        assert "damaged" in done.failed["two"]
        assert len(await bodies(target, "one")) == len(await bodies(target, "three")) == 10


async def test_a_session_that_is_deleted_meanwhile_stops_no_copy_of_a_database_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        await open_sqlite(tmp_path / "source.db") as source,
        await open_sqlite(tmp_path / "target.db") as target,
    ):
        await fill(source)

        async def and_delete_one(access: Access) -> list[Session]:
            found = await all_sessions(access)
            await source.delete_session("two")
            return found

        monkeypatch.setattr(transfer, "all_sessions", and_delete_one)
        assert await transfer.migrate_store(source, target) == transfer.Migrated(copied=2)
        assert len(await bodies(target, "one")) == len(await bodies(target, "three")) == 10
