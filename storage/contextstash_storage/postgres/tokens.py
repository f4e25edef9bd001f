"""The tokens of a server's clients, in PostgreSQL."""

from __future__ import annotations

from datetime import datetime

from contextstash_storage.postgres.connection import Connection, Database
from contextstash_storage.tokens import COLUMNS, Token, row_of, token_of


class PostgresTokens:
    """A TokenStore in a PostgreSQL database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: Token, sha256: bytes) -> bool:
        return await self._changed(
            f"INSERT INTO tokens ({COLUMNS}, sha256) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (name) DO NOTHING",
            *row_of(token),
            sha256,
        )

    async def read_all(self) -> list[Token]:
        async def work(db: Connection) -> list[Token]:
            return [token_of(row) for row in await db.fetch(f"SELECT {COLUMNS} FROM tokens ORDER BY name")]

        return await self._database.read(work)

    async def find(self, sha256: bytes) -> Token | None:
        async def work(db: Connection) -> Token | None:
            row = await db.fetchrow(f"SELECT {COLUMNS} FROM tokens WHERE sha256 = $1", sha256)
            return None if row is None else token_of(row)

        return await self._database.read(work)

    async def note_use(self, name: str, at: datetime) -> None:
        await self._changed("UPDATE tokens SET last_used_at = $1 WHERE name = $2", at.isoformat(), name)

    async def remove(self, name: str) -> bool:
        return await self._changed("DELETE FROM tokens WHERE name = $1", name)

    async def _changed(self, sql: str, *values: object) -> bool:
        """Run a statement; whether it changed a row."""

        async def work(db: Connection) -> bool:
            return not (await db.execute(sql, *values)).endswith(" 0")

        return await self._database.write(work)
