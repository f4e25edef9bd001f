"""Which database a text names; no password is shown, and a database of another version is refused with what to do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.database_file import convert
from contextstash_storage.databases import location_of, name_of, open_store
from contextstash_storage.errors import BadInputError, StoreError
from contextstash_storage.sqlite import look_at, open_sqlite
from contextstash_storage.transaction import VERSION, parse_address
from tests.support.stored_sessions import SESSION, new_session, record, says

SECRET = "s3cr%40t"
ADDRESS = f"postgresql://me:{SECRET}@db.example:5433/stash?sslmode=require"


def test_a_shown_address_holds_no_password() -> None:
    for text in (ADDRESS, "postgres://me@db.example/stash?password=s3cr%40t"):
        address = parse_address(text)
        assert name_of(address) == text
        for shown in (str(address), repr(address)):
            assert "s3cr" not in shown
            assert "me@db.example" in shown


@pytest.mark.parametrize("text", ["postgresql:stash", "postgresql://db.example:port/stash", "mysql://me:pw@db/x"])
def test_a_broken_address_is_refused_with_words(text: str) -> None:
    with pytest.raises(BadInputError, match=r"(?i)postgresql"):
        location_of(text)


async def test_a_server_that_cannot_be_reached_is_named_without_the_password(tmp_path: Path) -> None:
    address = location_of(f"postgresql://me:{SECRET}@/stash?host={tmp_path}")
    with pytest.raises(StoreError, match="cannot be opened") as raised:
        await open_store(address)
    assert "s3cr" not in str(raised.value)
    assert "postgresql://me@" in str(raised.value)


@pytest.mark.parametrize(
    ("version", "advice"), [(VERSION + 1, "Upgrade contextstash"), (VERSION - 1, "contextstash export"), (1, "import")]
)
async def test_a_database_of_another_version_is_refused_and_left_unchanged(
    path: Path, version: int, advice: str
) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(StoreError, match=advice):
        await open_sqlite(path)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("PRAGMA user_version").fetchone() == (version,)
        assert other.execute("SELECT * FROM sqlite_schema").fetchall() == []


@pytest.mark.parametrize("version", [0, 1, VERSION])
async def test_a_database_of_another_program_is_refused_and_not_a_byte_of_it_changes(path: Path, version: int) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY, user TEXT)")
        other.execute(f"PRAGMA user_version = {version}")
    content = path.read_bytes()
    for use in (lambda: look_at(path), lambda: convert(path, bytes(32), encrypt=True)):
        with pytest.raises(StoreError, match="of another program"):
            use()
    with pytest.raises(StoreError, match="Name another file with --db"):
        await open_store(path)
    assert (path.read_bytes(), list(path.parent.iterdir())) == (content, [path])


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
            with pytest.raises(StoreError, match="restart this program"):
                await work()
    with closing(sqlite3.connect(path)) as newer:
        assert newer.execute("SELECT sum(messages) FROM segments").fetchone() == (1,)
