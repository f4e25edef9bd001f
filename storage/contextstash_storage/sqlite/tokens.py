"""The tokens of a server's clients, in the embedded store."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import datetime

from contextstash_storage.sqlite.connection import Connection
from contextstash_storage.tokens import COLUMNS, Token, row_of, token_of


class SqliteTokens:
    """A TokenStore on the connections of a SqliteStore, whose writers wait for each other by `lock`."""

    def __init__(self, writer: Connection, reader: Connection, lock: asyncio.Lock) -> None:
        self._writer = writer
        self._reader = reader
        self._lock = lock

    async def add(self, token: Token, sha256: bytes) -> bool:
        values = (*row_of(token), sha256)
        return await self._changed(
            f"INSERT INTO tokens ({COLUMNS}, sha256) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING", values
        )

    async def read_all(self) -> list[Token]:
        def work(db: sqlite3.Connection) -> list[Token]:
            return [token_of(row) for row in db.execute(f"SELECT {COLUMNS} FROM tokens ORDER BY name")]

        return await self._reader.read(work)

    async def find(self, sha256: bytes) -> Token | None:
        def work(db: sqlite3.Connection) -> Token | None:
            row = db.execute(f"SELECT {COLUMNS} FROM tokens WHERE sha256 = ?", (sha256,)).fetchone()
            return None if row is None else token_of(row)

        return await self._reader.read(work)

    async def note_use(self, name: str, at: datetime) -> None:
        await self._changed("UPDATE tokens SET last_used_at = ? WHERE name = ?", (at.isoformat(), name))

    async def remove(self, name: str) -> bool:
        return await self._changed("DELETE FROM tokens WHERE name = ?", (name,))

    async def _changed(self, sql: str, values: tuple[object, ...]) -> bool:
        """Run a statement; whether it changed a row."""
        async with self._lock:
            return await self._writer.write(lambda db: db.execute(sql, values).rowcount > 0)
