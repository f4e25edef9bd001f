"""The tokens of a server's clients, of all owners: each a note under the SHA-256 of its secret."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import TypeAdapter

from contextstash_storage.notes import get, put
from contextstash_storage.transaction import Tx


@dataclass(frozen=True, slots=True)
class Token:
    """What a token allows: to work with one owner's sessions, within its scopes, until it expires."""

    name: str
    owner: str
    scopes: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None


_TOKEN = TypeAdapter(Token)


def _tokens(tx: Tx) -> dict[str, tuple[str, Token]]:
    """All tokens with their keys, by their names."""
    rows = [
        (key, _TOKEN.validate_json(record))
        for key, record in tx.rows("SELECT key, record FROM notes WHERE kind = 'token'")
    ]
    return {token.name: (key, token) for key, token in rows}


def add_token(tx: Tx, _: str, token: Token, sha256: bytes) -> bool:
    """Store a token; False, and nothing is done, if there is one of that name."""
    if token.name in _tokens(tx):
        return False
    put(tx, 0, "token", sha256.hex(), _TOKEN.dump_json(token).decode())
    return True


def read_tokens(tx: Tx, _: str) -> list[Token]:
    """All tokens, by their names."""
    return [token for _, (_, token) in sorted(_tokens(tx).items())]


def find_token(tx: Tx, _: str, sha256: bytes) -> Token | None:
    """The token with this hash, also one that has expired; None if there is none."""
    found = get(tx, 0, "token", sha256.hex())
    return None if found is None else _TOKEN.validate_json(found)


def remove_token(tx: Tx, _: str, name: str) -> bool:
    """Delete a token; False if there is none of that name."""
    found = _tokens(tx).get(name)
    return found is not None and tx.execute("DELETE FROM notes WHERE kind = 'token' AND key = ?", (found[0],)) == 1
