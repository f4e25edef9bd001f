"""The tokens of a server's clients, of all owners."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from contextstash_storage.transaction import Database, Tx


@dataclass(frozen=True, slots=True)
class Token:
    """What a token allows: to work with one owner's sessions, within its scopes, until it expires."""

    name: str
    owner: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None


class TokenStore:
    """The tokens of all owners. Each is a note under the SHA-256 of its secret."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, token: Token, sha256: bytes) -> bool:
        """Store a token; False, and nothing is done, if there is one of that name."""

        def work(tx: Tx) -> bool:
            if _named(tx, token.name) is not None:
                return False
            text = "INSERT INTO notes (session, kind, key, record) VALUES (0, 'token', ?, ?) ON CONFLICT DO NOTHING"
            return tx.execute(text, (sha256.hex(), _json_of(token))) == 1

        return await self._database.write(work)

    async def read_all(self) -> list[Token]:
        """All tokens, by their names."""
        return await self._database.read(lambda tx: sorted(_all(tx).values(), key=lambda token: token.name))

    async def find(self, sha256: bytes) -> Token | None:
        """The token with this hash, also one that has expired; None if there is none."""
        text = "SELECT record FROM notes WHERE kind = 'token' AND key = ?"
        rows = await self._database.read(lambda tx: tx.rows(text, (sha256.hex(),)))
        return _token_of(rows[0][0]) if rows else None

    async def note_use(self, name: str, at: datetime) -> None:
        """Store when a token was last used."""

        def work(tx: Tx) -> None:
            if (key := _named(tx, name)) is not None:
                used = {**json.loads(_json_of(_all(tx)[key])), "last_used_at": at.isoformat()}
                tx.execute("UPDATE notes SET record = ? WHERE kind = 'token' AND key = ?", (json.dumps(used), key))

        await self._database.write(work)

    async def remove(self, name: str) -> bool:
        """Delete a token; False if there is none of that name."""

        def work(tx: Tx) -> bool:
            return tx.execute("DELETE FROM notes WHERE kind = 'token' AND key = ?", (_named(tx, name) or "",)) == 1

        return await self._database.write(work)


def _all(tx: Tx) -> dict[str, Token]:
    """All tokens by their keys."""
    return {key: _token_of(record) for key, record in tx.rows("SELECT key, record FROM notes WHERE kind = 'token'")}


def _named(tx: Tx, name: str) -> str | None:
    """The key of the token of this name; None if there is none."""
    return next((key for key, token in _all(tx).items() if token.name == name), None)


_TIMES = ("created_at", "expires_at", "last_used_at")


def _json_of(token: Token) -> str:
    times: dict[str, Any] = {name: time.isoformat() for name in _TIMES if (time := getattr(token, name)) is not None}
    return json.dumps({"name": token.name, "owner": token.owner, "scopes": token.scopes, **times})


def _token_of(record: str) -> Token:
    fields = json.loads(record)
    times = {name: datetime.fromisoformat(fields[name]) for name in _TIMES if name in fields}
    return Token(fields["name"], fields["owner"], tuple(fields["scopes"]), **times)
