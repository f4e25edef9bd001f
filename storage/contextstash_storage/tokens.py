"""The tokens of a server's clients."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from contextstash_storage.sql.steps import Result, Statement, Steps


@dataclass(frozen=True, slots=True)
class Token:
    """What a token allows: to work with one owner's sessions, within its scopes, until it expires."""

    name: str
    owner: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class Run(Protocol):
    """Runs steps as one transaction."""

    def __call__(self, steps: Callable[[], Steps[Result]], /) -> Awaitable[Result]: ...


class TokenStore:
    """The tokens of all owners, whose steps are run by `read` and `write`. Each is known by the SHA-256 of its
    secret."""

    def __init__(self, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def add(self, token: Token, sha256: bytes) -> bool:
        """Store a token; False, and nothing is done, if there is one of that name."""
        text = f"INSERT INTO tokens ({_COLUMNS}, sha256) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING"
        return await self._write(lambda: _changed(text, *_row_of(token), sha256))

    async def read_all(self) -> list[Token]:
        """All tokens, by their names."""
        return await self._read(lambda: _found(f"SELECT {_COLUMNS} FROM tokens ORDER BY name"))

    async def find(self, sha256: bytes) -> Token | None:
        """The token with this hash, also one that has expired; None if there is none."""
        found = await self._read(lambda: _found(f"SELECT {_COLUMNS} FROM tokens WHERE sha256 = ?", sha256))
        return found[0] if found else None

    async def note_use(self, name: str, at: datetime) -> None:
        """Store when a token was last used."""
        await self._write(lambda: _changed("UPDATE tokens SET last_used_at = ? WHERE name = ?", at.isoformat(), name))

    async def remove(self, name: str) -> bool:
        """Delete a token; False if there is none of that name."""
        return await self._write(lambda: _changed("DELETE FROM tokens WHERE name = ?", name))


def _changed(text: str, *values: object) -> Steps[bool]:
    """Whether a statement changes a row."""
    return bool((yield Statement(f"{text} RETURNING name", values)))


def _found(text: str, *values: object) -> Steps[list[Token]]:
    return [_token_of(row) for row in (yield Statement(text, values))]


_COLUMNS = "name, owner, scopes, created_at, expires_at, last_used_at"


def _row_of(token: Token) -> tuple[str | None, ...]:
    return (
        token.name,
        token.owner,
        " ".join(token.scopes),
        token.created_at.isoformat(),
        token.expires_at.isoformat() if token.expires_at else None,
        token.last_used_at.isoformat() if token.last_used_at else None,
    )


def _token_of(row: Sequence[Any]) -> Token:
    name, owner, scopes, created, expires, used = row
    return Token(
        name,
        owner,
        tuple(scopes.split()),
        datetime.fromisoformat(created),
        datetime.fromisoformat(expires) if expires else None,
        datetime.fromisoformat(used) if used else None,
    )
