"""Tokens of a server's clients: what is stored of each, and where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Token:
    """What a token allows: to work with one owner's sessions, within its scopes, until it expires."""

    name: str
    owner: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class TokenStore(Protocol):
    """The tokens of all owners. Each is known by the SHA-256 of its secret."""

    async def add(self, token: Token, sha256: bytes) -> bool:
        """Store a token; False, and nothing is done, if there is one of that name."""
        ...

    async def read_all(self) -> list[Token]:
        """All tokens, by their names."""
        ...

    async def find(self, sha256: bytes) -> Token | None:
        """The token with this hash, also one that has expired; None if there is none."""
        ...

    async def note_use(self, name: str, at: datetime) -> None:
        """Store when a token was last used."""
        ...

    async def remove(self, name: str) -> bool:
        """Delete a token; False if there is none of that name."""
        ...


COLUMNS = "name, owner, scopes, created_at, expires_at, last_used_at"


def row_of(token: Token) -> tuple[str | None, ...]:
    """The values of a token's columns."""
    return (
        token.name,
        token.owner,
        " ".join(token.scopes),
        token.created_at.isoformat(),
        token.expires_at.isoformat() if token.expires_at else None,
        token.last_used_at.isoformat() if token.last_used_at else None,
    )


def token_of(row: Sequence[Any]) -> Token:
    """The token of a row's columns."""
    name, owner, scopes, created, expires, used = row
    return Token(
        name,
        owner,
        tuple(scopes.split()),
        datetime.fromisoformat(created),
        datetime.fromisoformat(expires) if expires else None,
        datetime.fromisoformat(used) if used else None,
    )
