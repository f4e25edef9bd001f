"""Tells other processes which sessions have changed, by NOTIFY, and hears it from them by LISTEN.

A notification within a transaction makes PostgreSQL commit one transaction after the other, all sessions' together. So
it is sent afterwards, for many changes at once: a process that dies in between has stored its change and announced
nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import asyncpg

from contextstash_storage.errors import StoreError
from contextstash_storage.postgres.connection import MAX_PAUSE_SECONDS, SETTINGS, Connection, Database

CHANNEL = "contextstash"

PAUSE_SECONDS = 0.05
"""Seconds whose changes are announced together: a reader of a page does not notice them."""

LONGEST_PAYLOAD = 7_999
"""Bytes of a notification at most, by PostgreSQL's manual."""

_LOST = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)


class Announcer:
    """Tells what this process has changed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed: set[tuple[str, str]] = set()
        self._telling: asyncio.Task[None] | None = None

    def tell(self, owner: str, session_id: str) -> None:
        """Tell, in a moment, that a session has changed."""
        self._changed.add((owner, session_id))
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_soon())

    async def close(self) -> None:
        """Tell the rest at once."""
        if self._telling is not None and not self._telling.done():
            self._telling.cancel()
            with suppress(asyncio.CancelledError):
                await self._telling
            await self._tell_all()

    async def _tell_soon(self) -> None:
        while self._changed:
            await asyncio.sleep(PAUSE_SECONDS)
            await self._tell_all()

    async def _tell_all(self) -> None:
        payloads = [payload for each in self._changed if len(payload := json.dumps(each)) <= LONGEST_PAYLOAD]
        self._changed.clear()

        async def work(db: Connection) -> None:
            await db.execute("SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload", CHANNEL, payloads)

        with suppress(StoreError):  # who listens asks again from time to time
            await self._database.read_one(work)  # one statement, which is a transaction of its own


async def changed_sessions(database: Database, owner: str) -> AsyncIterator[str | None]:
    """The ids of an owner's sessions as they change, by any process; None first, and whenever some may have been
    missed because the connection was lost."""
    while True:
        heard: asyncio.Queue[str | None] = asyncio.Queue()
        try:
            connection = await asyncpg.connect(database.address.url, server_settings=SETTINGS)
        except _LOST:
            await asyncio.sleep(MAX_PAUSE_SECONDS)
            continue

        def hear(_: Any, __: int, ___: str, payload: object, heard: asyncio.Queue[str | None] = heard) -> None:
            of, session_id = json.loads(str(payload))
            if of == owner:
                heard.put_nowait(session_id)

        def end(_: Any, heard: asyncio.Queue[str | None] = heard) -> None:
            heard.put_nowait(None)

        try:
            connection.add_termination_listener(end)
            await connection.add_listener(CHANNEL, hear)
            yield None
            while (session_id := await heard.get()) is not None:
                yield session_id
        finally:
            with suppress(*_LOST):
                await connection.close(timeout=MAX_PAUSE_SECONDS)
