"""One SQLite connection on its own thread, running whole functions there: a transaction is one hop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import aiosqlite

from contextstash_storage.errors import (
    StoreBusyError,
    StoreError,
    StoreFullError,
)

BUSY_SECONDS = 15.0
CACHED_STATEMENTS = 256

Result = TypeVar("Result")
Work = Callable[[sqlite3.Connection], Result]


class Connection(aiosqlite.Connection):
    """An aiosqlite connection that can run a function on its thread.

    aiosqlite hops between threads at every statement, some 200 µs each, and leaves a transaction open where
    an await between two statements is cancelled. A function run whole has neither trouble.
    """

    async def run(self, work: Work[Result]) -> Result:
        """What `work` answers. Once begun it runs to its end, also where the caller is cancelled."""
        return await self._execute(_translated, work, self._conn)  # type: ignore[no-any-return, no-untyped-call]

    async def write(self, work: Work[Result]) -> Result:
        """What `work` answers, as one transaction: committed and durable, or rolled back whole."""
        return await self.run(lambda db: in_transaction(db, work))


def in_transaction(db: sqlite3.Connection, work: Work[Result]) -> Result:
    """Run `work` between BEGIN IMMEDIATE and COMMIT; roll back on any error."""
    db.execute("BEGIN IMMEDIATE")
    try:
        result = work(db)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
    return result


def _translated(work: Work[Result], db: sqlite3.Connection) -> Result:
    try:
        return work(db)
    except sqlite3.Error as error:
        raise store_error(error) from error


def store_error(error: sqlite3.Error) -> StoreError:
    """The error of ours that says what a driver's error means and what to do."""
    text = str(error)
    if "locked" in text or "busy" in text:
        return StoreBusyError(
            "The database is held by another process for too long; nothing was written. Try again in a moment."
        )
    if "full" in text:
        return StoreFullError("The disk is full; nothing was written. Make room and try again.")
    if "not a database" in text or "malformed" in text:
        return StoreError(
            "The database file is damaged or is no SQLite database. Put it aside and restore a backup,"
            " or name another with --db."
        )
    return StoreError(f"The database could not do that: {text}.")


async def connect(path: Path, *, read_only: bool = False) -> Connection:
    """Open a connection in write-ahead mode; every commit is on the disk when it returns."""

    def open_it() -> sqlite3.Connection:
        db = sqlite3.connect(
            path,
            isolation_level=None,
            timeout=BUSY_SECONDS,
            cached_statements=CACHED_STATEMENTS,
            check_same_thread=False,
        )
        try:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA temp_store = MEMORY")
            if read_only:
                db.execute("PRAGMA query_only = ON")
        except BaseException:
            db.close()
            raise
        return db

    connection = Connection(open_it, 64)
    connection._thread.daemon = True
    try:
        await connection
    except sqlite3.Error as error:
        raise store_error(error) from error
    return connection


async def close(*connections: Connection) -> None:
    """Close for certain, also where the caller is being cancelled."""
    await asyncio.shield(asyncio.gather(*(connection.close() for connection in connections)))
