"""A pool of connections to PostgreSQL that runs whole transactions, again if that is safe."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol, TypeVar

import asyncpg

from contextstash_storage.errors import (
    BadInputError,
    StoreBusyError,
    StoreError,
    StoreFullError,
)
from contextstash_storage.postgres.address import Address

RETRY_SECONDS = 10.0
"""For how long a transaction waits for a connection of the pool or for a lock, and is tried again if it was not
committed: as long as the embedded store waits for a lock. A restart of PostgreSQL takes 1 to 3 s."""

FIRST_PAUSE_SECONDS = 0.02
MAX_PAUSE_SECONDS = 1.0

COMMAND_SECONDS = 300.0
"""How long one statement may take. The longest writes the pieces of a session of a million messages."""

SETTINGS = {"application_name": "contextstash", "jit": "off"}
"""Compiling a statement takes longer than ours do."""

Result = TypeVar("Result")


class Connection(Protocol):
    """What is used of the driver's connection. A statement's values are $1, $2, …"""

    async def execute(self, sql: str, /, *values: object) -> str: ...

    async def executemany(self, sql: str, rows: Sequence[Sequence[object]], /) -> None: ...

    async def fetch(self, sql: str, /, *values: object) -> Sequence[Any]: ...

    async def fetchrow(self, sql: str, /, *values: object) -> Any: ...

    async def fetchval(self, sql: str, /, *values: object) -> Any: ...


Work = Callable[[Connection], Awaitable[Result]]

_UNREACHABLE = (
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.TooManyConnectionsError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    OSError,
    TimeoutError,
)
_COLLIDED = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
)
_DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)
_UNSTORABLE = (asyncpg.DataError, UnicodeEncodeError, OverflowError)


def _is_unreachable(error: BaseException) -> bool:
    """Whether the server was not there, or went away. The driver has one class for using a closed connection and for
    using it wrongly."""
    return isinstance(error, _UNREACHABLE) or (
        isinstance(error, asyncpg.InterfaceError) and ("closed" in str(error) or "closing" in str(error))
    )


class CommitUnknownError(StoreError):
    """The connection broke during a commit."""


class Database:
    """The pool of one store."""

    def __init__(self, address: Address, pool: Any, retry_seconds: float) -> None:
        self.address = address
        self._retry_seconds = retry_seconds
        self._pool = pool
        self._closed = False

    async def close(self) -> None:
        """Close the connections, after what runs on them; closing again does nothing."""
        if not self._closed:
            self._closed = True
            await self._pool.close()

    async def write(self, work: Work[Result]) -> Result:
        """What `work` returns, run as one transaction: committed durably, or rolled back. It can run several times, so
        it changes nothing but the database."""
        return await self._again(work, isolation="read_committed", readonly=False)

    async def write_once(self, work: Work[Result]) -> Result:
        """The same for `work` that cannot run a second time."""
        try:
            return await self._transaction(work, isolation="read_committed", readonly=False)
        except (*_DRIVER_ERRORS, *_UNSTORABLE) as error:
            raise store_error(error) from error

    async def read(self, work: Work[Result]) -> Result:
        """What `work` returns; all its reads see the same state of the database."""
        return await self._again(work, isolation="repeatable_read", readonly=True)

    async def read_one(self, work: Work[Result]) -> Result:
        """The same for `work` that runs one statement, which sees one state anyway: one round trip instead of three."""
        return await self._again(work)

    async def _again(self, work: Work[Result], **kind: Any) -> Result:
        give_up = time.monotonic() + self._retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            if self._closed:
                raise StoreError("The session store is closed.")
            try:
                return await self._transaction(work, **kind)
            except (*_DRIVER_ERRORS, *_UNSTORABLE) as error:
                passes = _is_unreachable(error) or isinstance(error, _COLLIDED)
                if not passes or self._closed or time.monotonic() > give_up:
                    raise store_error(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Any]:
        """One of the pool's connections. Raises StoreBusyError if all are in use for too long."""
        try:
            connection = await self._pool.acquire(timeout=self._retry_seconds)
        except TimeoutError as error:
            if _is_end_of_waiting(error) and self._pool.get_size() >= self.address.pool_size:
                raise StoreBusyError(
                    f"All {self.address.pool_size} connections of this process to the database were in use for"
                    f" {self._retry_seconds:g} s; nothing was written. Try again in a moment, or pass a larger"
                    " pool_size in --db."
                ) from error
            raise
        try:
            yield connection
        finally:
            await self._pool.release(connection)

    async def _transaction(self, work: Work[Result], **kind: Any) -> Result:
        async with self._connection() as connection:
            if not kind:
                return await _in_time(work(connection))
            transaction = connection.transaction(**kind)
            await transaction.start()
            try:
                result = await _in_time(work(connection))
            except BaseException:
                with suppress(*_DRIVER_ERRORS):
                    await transaction.rollback()
                raise
            try:
                await transaction.commit()
            except (asyncpg.InterfaceError, *_UNREACHABLE) as error:
                raise CommitUnknownError(
                    "The connection to the database broke at the end of a transaction: it may be stored or not. Send"
                    " the same again with what identifies it (first_seq, batch_id or keys)."
                ) from error
            return result


def _is_end_of_waiting(error: TimeoutError) -> bool:
    """Whether we ended a wait, and not the operating system: that gives its errors a number."""
    return error.errno is None


async def _in_time(result: Awaitable[Result]) -> Result:
    """The result. Raises StoreBusyError if a statement takes too long."""
    try:
        return await result
    except TimeoutError as error:
        if not _is_end_of_waiting(error):
            raise
        raise StoreBusyError(
            f"The database did not finish a statement within {COMMAND_SECONDS:g} s: it is overloaded. Nothing was"
            " written. Try again in a moment."
        ) from error


async def _leave(_: object) -> None:
    """What the pool does with a connection after use: nothing. Each transaction of ours has ended by then, and none
    changes the connection's settings; asyncpg's own reset is one more round trip for each."""


async def connect(address: Address, retry_seconds: float = RETRY_SECONDS) -> Database:
    """A pool for a database. Raises StoreError if it cannot be reached."""
    # Poolers between us and the database refuse settings that they do not know, so there is one less for these.
    settings = {**SETTINGS, "lock_timeout": f"{1_000 * retry_seconds:.0f}"} if address.prepares else SETTINGS
    try:
        pool = await asyncpg.create_pool(
            address.url,
            min_size=1,
            max_size=address.pool_size,
            command_timeout=COMMAND_SECONDS,
            server_settings=settings,
            reset=_leave,
            **({} if address.prepares else {"statement_cache_size": 0}),
        )
    except (*_DRIVER_ERRORS, ValueError) as error:
        reason = _reason(error).replace(address.password, "***") if address.password else _reason(error)
        raise StoreError(
            f"The database {address} cannot be opened: {reason}. See that the server runs, and to the name, password"
            " and permissions in --db."
        ) from error
    return Database(address, pool, retry_seconds)


def _reason(error: BaseException) -> str:
    """What a driver's error says, without the values of rows that its detail may quote."""
    return str(error.args[0]).strip().rstrip(".") if error.args else type(error).__name__


def store_error(error: BaseException) -> StoreError | BadInputError:
    """Our error for a driver's error, which says what it means and what to do."""
    if isinstance(error, asyncpg.DiskFullError):
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
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreError(f"The database user may not do that: {_reason(error)}. Grant it that right.")
    return StoreError(f"The database could not do that: {_reason(error)}.")
