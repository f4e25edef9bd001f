"""The tokens of a server's clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Protocol

from contextstash_storage.sql.steps import Result, Statement, Steps
from contextstash_storage.tokens import COLUMNS, Token, row_of, token_of


class Run(Protocol):
    """Runs steps as one transaction."""

    def __call__(self, steps: Callable[[], Steps[Result]], /) -> Awaitable[Result]: ...


class RowTokens:
    """A TokenStore whose steps are run by `read` and `write`."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def add(self, token: Token, sha256: bytes) -> bool:
        text = f"INSERT INTO tokens ({COLUMNS}, sha256) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
        return await self._write(lambda: _changed(text, *row_of(token), sha256))

    async def read_all(self) -> list[Token]:
        return await self._read(lambda: _found(f"SELECT {COLUMNS} FROM tokens ORDER BY name"))

    async def find(self, sha256: bytes) -> Token | None:
        found = await self._read(lambda: _found(f"SELECT {COLUMNS} FROM tokens WHERE sha256 = ?", sha256))
        return found[0] if found else None

    async def note_use(self, name: str, at: datetime) -> None:
        await self._write(lambda: _changed("UPDATE tokens SET last_used_at = ? WHERE name = ?", at.isoformat(), name))

    async def remove(self, name: str) -> bool:
        return await self._write(lambda: _changed("DELETE FROM tokens WHERE name = ?", name))


def _changed(text: str, *values: object) -> Steps[bool]:
    """Whether a statement changes a row."""
    return bool((yield Statement(f"{text} RETURNING name", values)))


def _found(text: str, *values: object) -> Steps[list[Token]]:
    return [token_of(row) for row in (yield Statement(text, values))]
