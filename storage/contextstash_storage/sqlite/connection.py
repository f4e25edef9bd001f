"""One SQLite connection on its own thread, running whole functions there; small writes are committed together."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiosqlite

from contextstash_storage.errors import BadInputError, StoreBusyError, StoreError, StoreFullError, StoreVersionError
from contextstash_storage.sqlite import match
from contextstash_storage.sqlite.database_file import DriverError, FindKey, no_key, open_file, primary_code, read_head
from contextstash_storage.transaction import VERSION, Matching, Result, Tx, TxWork, check_version, only, statements

BUSY_SECONDS = 10.0
"""How long to wait for another process's transaction."""

CACHED_STATEMENTS = 256

LOG_WAIT_MILLISECONDS = 100
"""How long truncating the log may wait for readers in one attempt: SQLite keeps the write lock meanwhile."""

BEGIN_WRITING = "BEGIN IMMEDIATE"

LOOK_SECONDS = (0.0005, 0.003)
"""Shortest and longest time after which it is tried again to take the write lock, chosen at random so that no process
is always first. An attempt takes about 20 µs; with 8 processes that write all the time none waited for over a second
(bench/speed)."""

_RETRY_SECONDS = 0.02

Work = Callable[[sqlite3.Connection], Result]


class SqliteTx:
    """A transaction, or what runs on a connection without one; see transaction.Tx."""

    __slots__ = ("_db",)

    lock = ""
    numbers = texts = "(SELECT value FROM json_each(?))"
    index: Matching = match

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def rows(self, text: str, values: Sequence[object] = ()) -> list[Any]:
        return self._db.execute(text, values).fetchall()

    def execute(self, text: str, values: Sequence[object] = ()) -> int:
        return self._db.execute(text, values).rowcount

    def many(self, text: str, rows: Sequence[Sequence[object]]) -> None:
        if rows:
            self._db.executemany(text, rows)

    def reserve(self, table: str, column: str, count: int) -> list[int]:
        last = int(only(self.rows(f"SELECT coalesce(max({column}), 0) FROM {table}")))
        return list(range(last + 1, last + 1 + count))

    def clock(self) -> float:
        # Which all processes of a machine share. The time of day can be set: then a lease would end early or never.
        return time.monotonic()


class Connection(aiosqlite.Connection):
    """An aiosqlite connection that can run a function on its thread.

    aiosqlite switches threads at every statement, about 200 µs each, and leaves a transaction open if an await between
    two statements is cancelled. Running a whole function on the thread avoids both.
    """

    async def run(self, work: Work[Result]) -> Result:
        """What `work` returns. Once started it runs to its end, even if the caller is cancelled."""
        if not self._running or self._connection is None:
            raise StoreError("The session store is closed.")
        return await self._execute(translated, work, self._connection)  # type: ignore[no-any-return, no-untyped-call]

    async def write(self, work: TxWork[Result]) -> Result:
        """What `work` returns, run as one transaction: committed durably, or rolled back."""
        return await self.run(lambda db: in_transaction(db, work))

    async def read(self, work: TxWork[Result]) -> Result:
        """What `work` returns; all its reads see the same state of the database."""
        return await self.run(lambda db: in_transaction(db, work, "BEGIN"))


def in_transaction(db: sqlite3.Connection, work: TxWork[Result], begin: str = BEGIN_WRITING) -> Result:
    """Run `work` between `begin` and COMMIT; roll back on any error. Raises StoreVersionError if a newer program has
    migrated the database since it was opened: this one would misread it, or write what the newer one does not expect.
    """
    if begin == BEGIN_WRITING:
        _begin_writing(db)
    else:
        db.execute(begin)
    try:
        known = getattr(db, "version", None)  # see open_file
        if known is not None:
            [version] = db.execute("PRAGMA user_version").fetchone()
            if version != known:
                raise StoreVersionError(
                    f"A newer contextstash has brought the database from version {known} to {version}: restart"
                    " this program. Nothing was written."
                )
        result = work(SqliteTx(db))
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _begin_writing(db: sqlite3.Connection) -> None:
    """Take the write lock, for which SQLite has no queue: a process that waits in SQLite's own way looks ever more
    rarely, up to every 100 ms, and may find the lock taken by others for seconds. Looking often makes it even."""
    [limit] = db.execute("PRAGMA busy_timeout").fetchone()
    give_up = time.monotonic() + limit / 1_000
    db.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                db.execute(BEGIN_WRITING)
                return
            except DriverError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                    raise
            time.sleep(random.uniform(*LOOK_SECONDS))
    finally:
        db.execute(f"PRAGMA busy_timeout = {limit}")


def translated(work: Work[Result], db: sqlite3.Connection) -> Result:
    """What `work` returns; what the driver raises becomes an error that says what to do."""
    try:
        return work(db)
    except (DriverError, UnicodeDecodeError) as error:
        raise store_error(error) from error
    except (UnicodeEncodeError, OverflowError) as error:
        raise BadInputError(f"A name or number among the arguments cannot be stored: {error}.") from error


def store_error(error: sqlite3.Error | UnicodeDecodeError) -> StoreError:
    """The StoreError for a driver's error, which says what it means and what to do. The driver cannot say in words what
    is wrong with a damaged schema that is no text."""
    code = sqlite3.SQLITE_CORRUPT if isinstance(error, UnicodeDecodeError) else primary_code(error)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusyError(
            "The database is locked by another process for too long; nothing was written. Try again in a moment."
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError("The disk is full; nothing was written. Make room and try again.")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreError(
            "The database file is damaged or is no SQLite database. Put it aside and restore a backup,"
            " or name another with --db."
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        return StoreError(
            f"The database cannot be read or written ({error}). See to its folder, its disk and their permissions,"
            " or name another with --db."
        )
    return StoreError(f"The database could not do that: {error}.")


async def connect(
    path: Path, find_key: FindKey = no_key, *, read_only: bool = False, busy_seconds: float = BUSY_SECONDS
) -> Connection:
    """Open a connection in write-ahead mode; every commit is on the disk when it returns."""

    def prepare(db: sqlite3.Connection) -> None:
        _use_write_ahead_log(db, busy_seconds)
        db.execute("PRAGMA synchronous = FULL")
        db.execute("PRAGMA temp_store = MEMORY")
        db.execute("PRAGMA secure_delete = ON")
        if read_only:
            db.execute("PRAGMA query_only = ON")
        read_head(db)

    def open_it() -> sqlite3.Connection:
        return open_file(
            path,
            find_key,
            prepare,
            isolation_level=None,
            timeout=busy_seconds,
            cached_statements=CACHED_STATEMENTS,
            check_same_thread=False,
        )

    connection = Connection(open_it, 64)
    connection._thread.daemon = True
    try:
        await connection
    except Exception as error:
        # It reports its end to the event loop, which a hook closes at once: too late, that would be printed.
        await asyncio.to_thread(connection._thread.join)
        if isinstance(error, (DriverError, UnicodeDecodeError)):
            raise store_error(error) from error
        raise
    return connection


def _use_write_ahead_log(db: sqlite3.Connection, busy_seconds: float) -> None:
    """Turn the write-ahead log on. If two processes do that to a new file at the same time, SQLite refuses one of them
    with 'locked' without waiting, so this function waits."""
    give_up = time.monotonic() + busy_seconds
    while True:
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except DriverError as error:
            if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(_RETRY_SECONDS)


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new database. Raises StoreVersionError for a database of another version."""

    def make(tx: Tx) -> None:
        if not read_version(db):  # no other process was faster
            for statement in (*statements(), match.SCHEMA, f"PRAGMA user_version = {VERSION}"):
                tx.execute(statement)

    version = read_version(db)
    check_version(version)
    if not version:
        in_transaction(db, make)
    note_version(db)


def note_version(db: sqlite3.Connection) -> None:
    """From now on the connection refuses a database of another version."""
    if hasattr(db, "version"):  # see open_file
        db.version = VERSION


def read_version(db: sqlite3.Connection) -> int:
    """The version of a database, 0 if it has no tables."""
    [version] = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def truncate_log(db: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the file and cut it to nothing; False if readers of an older state are in the way.
    Most is moved before the write lock is taken."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    [usual] = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {LOG_WAIT_MILLISECONDS}")
    try:
        [busy, _, _] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {usual}")
    return not busy


async def close(*connections: Connection) -> None:
    """Close the connections in this order, even if the caller is cancelled; the cancellation is raised at the end."""

    async def in_order() -> None:
        async with AsyncExitStack() as stack:
            for connection in reversed(connections):
                stack.push_async_callback(connection.close)

    closing = asyncio.ensure_future(in_order())
    try:
        await asyncio.shield(closing)
    except asyncio.CancelledError:
        await closing
        raise


Made = Callable[[], TxWork[Result]]
"""Makes a work that writes."""

MAX_TOGETHER = 16
"""Writes of one commit: 16 messages of usual size take about 10 ms, in which other processes wait."""


@dataclass
class GroupCommit:
    """Writes of one connection. `lock` is what all its writers hold; of each that waits, `_waiting` has where its
    outcome goes."""

    writer: Connection
    lock: asyncio.Lock
    _waiting: list[tuple[Made[Any], asyncio.Future[Any]]] = field(default_factory=list)

    async def write(self, make: Made[Result]) -> Result:
        """What the work returns that `make` makes, run in a transaction with the writes that wait at the same time; if
        it fails, the others are committed all the same. `make` is called on the writer's thread before the transaction,
        and again with its work if what that wrote was rolled back."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((make, outcome))
        try:
            while not outcome.done():
                async with self.lock:
                    if not outcome.done():
                        # Cancelled callers must not keep the others from their outcomes.
                        await asyncio.shield(asyncio.ensure_future(self._commit()))
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        return outcome.result()

    async def _commit(self) -> None:
        waiting = [each for each in self._waiting if not each[1].done()]
        group, self._waiting = waiting[:MAX_TOGETHER], waiting[MAX_TOGETHER:]
        try:
            found = await self.writer.run(lambda db: _together(db, [make for make, _ in group]))
        except Exception as error:
            found = [error] * len(group)
        for (_, outcome), result in zip(group, found, strict=True):
            if outcome.done():
                continue
            if isinstance(result, Exception):
                outcome.set_exception(result)
            else:
                outcome.set_result(result)


def _together(db: sqlite3.Connection, made: Sequence[Made[Any]]) -> list[Any]:
    """What each returns, or the exception that it raises. If one fails, all are rolled back and run again, each alone:
    that is rare, and shows which of them it was."""

    def written(db: sqlite3.Connection) -> list[Any]:
        works = [make() for make in made]
        return in_transaction(db, lambda tx: [work(tx) for work in works])

    try:
        return translated(written, db)
    except Exception as error:
        # If the lock was not to be had, each would wait for it as long again.
        if len(made) <= 1 or isinstance(error, StoreBusyError):
            return [error] * len(made)
    return [outcome for make in made for outcome in _together(db, [make])]
