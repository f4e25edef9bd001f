"""The session store in PostgreSQL: any number of processes on any number of machines. Each connection is used by one
thread at a time, and runs whole transactions, again if that is safe."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors
from psycopg.conninfo import conninfo_to_dict

from contextstash_storage.errors import BadInputError, StoreBusyError, StoreError, StoreFullError
from contextstash_storage.postgres import match
from contextstash_storage.postgres.address import Address
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import (
    BUSY_SECONDS,
    VERSION,
    Matching,
    Result,
    Tx,
    TxWork,
    check_version,
    only,
    statements,
)

CONNECTIONS = 10
"""Of one process at most, as in asyncpg. Each costs the server about 10 MB."""

FIRST_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0

COMMAND_SECONDS = 300.0
"""How long one statement may take. The longest writes the pieces of a session of a million messages."""

CONNECTION: dict[str, Any] = {
    "application_name": "contextstash",
    "connect_timeout": 10,
    # A server whose machine is gone without a word is noticed in a minute, else in 15 minutes to 2 hours.
    "tcp_user_timeout": 60_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
}
"""What an address does not say; times are in seconds, that of TCP in milliseconds."""

WRITING, READING = "READ COMMITTED", "REPEATABLE READ READ ONLY"
"""The ways in which a transaction sees others."""

_COLLIDED = (errors.SerializationFailure, errors.DeadlockDetected, errors.LockNotAvailable)
_UNSTORABLE = (psycopg.DataError, UnicodeEncodeError, OverflowError)
_DRIVER_ERRORS = (psycopg.Error, *_UNSTORABLE)


class CommitUnknownError(StoreError):
    """The connection broke during a commit."""


class PostgresTx(Tx):
    """A transaction."""

    __slots__ = ()

    lock = " FOR UPDATE"
    numbers = "(SELECT CAST(value AS bigint) FROM json_array_elements_text(CAST(? AS json)) AS each (value))"
    texts = "(SELECT value FROM json_array_elements_text(CAST(? AS json)) AS each (value))"
    index: Matching = match

    @staticmethod
    @lru_cache(maxsize=512)
    def spoken(text: str) -> bytes:
        """A statement with the driver's placeholders."""
        return text.replace("%", "%%").replace("?", "%s").encode()

    def reserve(self, table: str, column: str, count: int) -> list[int]:
        text = "SELECT nextval(pg_get_serial_sequence(?, ?)) FROM generate_series(1, CAST(? AS bigint))"
        return [number for (number,) in self.rows(text, (table, column, count))]

    def clock(self) -> float:
        # The server's, which all machines share.
        return float(only(self.rows("SELECT extract(epoch FROM clock_timestamp())")))


class PostgresDatabase:
    """The connections of one store: one for each of its threads."""

    def __init__(self, address: Address, retry_seconds: float) -> None:
        self.address = address
        self._retry_seconds = retry_seconds
        self._threads = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="postgres")
        self._own = threading.local()
        self._opened: list[psycopg.Connection[Any]] = []
        self._closed = False

    async def check(self) -> None:
        """Raise StoreError if the server cannot be reached."""
        try:
            await self._in_thread(self._connection)
        except (psycopg.Error, ValueError) as error:
            raise _opening_error(self.address, error) from error

    async def close(self) -> None:
        """Close the connections, after what runs on them; closing again does nothing."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        while self._opened:
            await asyncio.to_thread(self._opened.pop().close)

    async def forget(self, *_: object) -> bool:
        """Nothing: PostgreSQL overwrites removed rows when it vacuums their tables."""
        return True

    async def write(self, work: TxWork[Result]) -> Result:
        """What `work` returns, run as one transaction: committed durably, or rolled back. It can run several times, so
        it changes nothing but the database."""
        return await self._again(work, WRITING)

    write_together = write

    async def read(self, work: TxWork[Result]) -> Result:
        """What `work` returns; all its reads see the same state of the database."""
        return await self._again(work, READING)

    async def _again(self, work: TxWork[Result], mode: str) -> Result:
        give_up = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            if self._closed:
                raise StoreError("The session store is closed.")
            try:
                return await self._in_thread(lambda: self._transaction(work, mode))
            except _DRIVER_ERRORS as error:
                passes = _is_unreachable(error) or isinstance(error, _COLLIDED)
                if not passes or self._closed or time.monotonic() > give_up:
                    raise store_error(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        """What `work` returns, run when a thread is free. Once started it runs to its end, even if the caller is
        cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def _transaction(self, work: TxWork[Result], mode: str) -> Result:
        db = self._connection()
        # Compiling a statement takes longer than ours do. One way to the server for all of it.
        limits = {"jit": "off", "lock_timeout": round(1_000 * self._retry_seconds)}
        limits["statement_timeout"] = round(1_000 * COMMAND_SECONDS)
        begin = "; ".join([f"BEGIN ISOLATION LEVEL {mode}", *(f"SET LOCAL {n} = {v}" for n, v in limits.items())])
        try:
            db.execute(begin.encode())
            result = work(PostgresTx(db))
        except BaseException:
            with suppress(psycopg.Error):
                db.execute("ROLLBACK")
            raise
        if mode == READING:
            db.execute("COMMIT")
        else:
            _commit(db)
        return result

    def _connection(self) -> psycopg.Connection[Any]:
        """The connection of the thread that runs this."""
        db: psycopg.Connection[Any] | None = getattr(self._own, "db", None)
        if db is not None and not db.closed and not db.broken:
            return db
        if db is not None:
            db.close()
            self._opened.remove(db)
            self._own.db = None
        db = psycopg.connect(**{**CONNECTION, **conninfo_to_dict(self.address.url)}, autocommit=True)
        self._opened.append(db)
        self._own.db = db
        return db


def _commit(db: psycopg.Connection[Any]) -> None:
    try:
        db.execute("COMMIT")
    except psycopg.Error as error:
        if not _is_unreachable(error):
            raise
        raise CommitUnknownError(
            "The connection to the database broke at the end of a transaction: it may be stored or not. Send"
            " the same again with what identifies it (first_seq, batch_id or keys)."
        ) from error


def _is_unreachable(error: BaseException) -> bool:
    """Whether the server was not there, or went away: the driver then has no code of an error of the server, or one of
    those of its end, or of too many connections."""
    if not isinstance(error, psycopg.OperationalError):
        return False
    state = error.sqlstate
    return state is None or state.startswith(("08", "57P", "53300"))


def _opening_error(address: Address, error: BaseException) -> StoreError:
    """The error for a database that cannot be opened; it never holds the password."""
    reason = _reason(error).replace(address.password, "***") if address.password else _reason(error)
    return StoreError(
        f"The database {address} cannot be opened: {reason}. See that the server runs, and to the name, password"
        " and permissions in --db."
    )


def _reason(error: BaseException) -> str:
    """What a driver's error says, without the values of rows that its detail may quote."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    return (primary or str(error) or type(error).__name__).strip().rstrip(".")


def store_error(error: BaseException) -> StoreError | BadInputError:
    """Our error for a driver's error, which says what it means and what to do."""
    if isinstance(error, errors.DiskFull):
        return StoreFullError("The database server's disk is full; nothing was written. Make room and try again.")
    if isinstance(error, _COLLIDED):
        return StoreBusyError(
            "The session, or the database, is locked by another process for too long; nothing was written. Try again in"
            " a moment."
        )
    if _is_unreachable(error):
        return StoreBusyError(
            f"The database server cannot be reached ({_reason(error)}); nothing was written. Try again in a moment."
        )
    if isinstance(error, _UNSTORABLE):
        return BadInputError(f"A name or number among the arguments cannot be stored: {_reason(error)}.")
    if isinstance(error, errors.InsufficientPrivilege):
        return StoreError(f"The database user may not do that: {_reason(error)}. Grant it that right.")
    return StoreError(f"The database could not do that: {_reason(error)}.")


# The store

LOCK = 0x636F6E7465787473
"""The advisory lock of making tables: the letters `contexts`."""

TYPES = {
    "INTEGER PRIMARY KEY": "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
    " INTEGER": " bigint",
    " REAL": " double precision",
    " BLOB": " bytea",
    # Compared by its bytes, as in SQLite.
    " TEXT": ' text COLLATE "C"',
}
"""The types of schema.sql in PostgreSQL."""


class PostgresStore(SessionStore):
    """A SessionStore in PostgreSQL."""

    database: PostgresDatabase


async def open_postgres(address: Address, *, busy_seconds: float = BUSY_SECONDS) -> PostgresStore:
    """Open the database at an address; its tables are made if they do not exist. A transaction waits `busy_seconds` for
    a connection or for a lock, and is tried again for so long if it failed for a reason that passes.

    Raises StoreVersionError for a database of a newer contextstash, StoreError for one that cannot be used.
    """
    database = PostgresDatabase(address, busy_seconds)
    try:
        await database.check()
        await database.write(make_tables)
        store = PostgresStore(database)
        await store.continue_work()
    except BaseException:
        await database.close()
        raise
    return store


def make_tables(tx: Tx) -> None:
    """Make the tables of a new database. Raises StoreVersionError for a database of another version."""
    version = _version(tx)
    if not version:
        tx.execute("SELECT pg_advisory_xact_lock(?)", (LOCK,))
        version = _version(tx)  # another process may have made them meanwhile
    check_version(version)
    if not version:
        for statement in (*map(_in_postgres, statements()), *match.SCHEMA):
            tx.execute(statement)
        tx.execute("CREATE TABLE contextstash_version (version integer NOT NULL)")
        tx.execute("INSERT INTO contextstash_version VALUES (?)", (VERSION,))


def _in_postgres(statement: str) -> str:
    for ours, its in TYPES.items():
        statement = statement.replace(ours, its)
    if statement.startswith("CREATE TABLE segments"):
        # They are compressed already.
        statement += "; ALTER TABLE segments ALTER facts SET STORAGE EXTERNAL, ALTER contents SET STORAGE EXTERNAL"
    return statement


def _version(tx: Tx) -> int:
    # Not by to_regclass, which may remember that there was none before another process made it.
    known = "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'contextstash_version'"
    if not tx.rows(known):
        return 0
    return int(only(tx.rows("SELECT version FROM contextstash_version")))
