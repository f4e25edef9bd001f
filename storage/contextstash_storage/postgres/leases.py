"""Leases in PostgreSQL: they end when their time is over, and at once when their holder's process is gone."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any

import asyncpg

from contextstash_storage.postgres.address import Address
from contextstash_storage.postgres.connection import SETTINGS
from contextstash_storage.sql.steps import Key, Statement, Steps


class ProcessLock:
    """An advisory lock that tells other processes, on any machine, that this one is alive. It needs a connection of its
    own: PostgreSQL releases the lock when that one ends, however it ends."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Any = None
        self._taking = asyncio.Lock()
        self.number = secrets.randbits(63)

    async def take(self) -> None:
        """Take the lock, also again after the connection was lost."""
        async with self._taking:
            if self._connection is None or self._connection.is_closed():
                self._connection = await asyncpg.connect(self._address.url, server_settings=SETTINGS)
                await self._connection.execute("SELECT pg_advisory_lock($1)", self.number)

    async def close(self) -> None:
        """Give the lock back."""
        if self._connection is not None:
            with suppress(OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                await self._connection.close(timeout=2.0)
            self._connection = None


def acquire(key: Key, purpose: str, holder: str, seconds: float, process: int) -> Steps[bool]:
    """Take or renew a lease; False if another holder's is in force. Time is the server's, which all machines share."""
    taken = yield Statement(
        "INSERT INTO leases (owner, session_id, purpose, holder, process, expires_at)"
        " VALUES (?, ?, ?, ?, ?, clock_timestamp() + make_interval(secs => ?))"
        " ON CONFLICT (owner, session_id, purpose) DO UPDATE"
        " SET holder = excluded.holder, process = excluded.process, expires_at = excluded.expires_at"
        # The lock of a process that is gone can be had; it is given back at the end of the transaction.
        " WHERE leases.holder = excluded.holder OR leases.expires_at <= clock_timestamp()"
        " OR (leases.process <> excluded.process AND pg_try_advisory_xact_lock(leases.process)) RETURNING 1",
        (*key, purpose, holder, process, seconds),
    )
    return bool(taken)
