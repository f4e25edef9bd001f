"""Tokens of a server's clients: they are made here, hashed before they are stored, and verified."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash_storage.notes import Token
    from contextstash_storage.store import SessionStore

SCOPES = ("read", "write", "admin")
DEFAULT_SCOPES = ("read", "write")


PREFIX = "cst_"
"""Begins each secret, so that scanners for leaked secrets find it."""

SECRET_BYTES = 32

_SECRET = re.compile(rf"{PREFIX}[A-Za-z0-9_-]{{43}}")
"""The form of each secret: 32 bytes in base64 are 43 characters."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")

MAX_OWNER_LENGTH = 200


def digest(secret: str) -> bytes:
    """The hash under which a token is stored. Slow, salted hashes protect passwords, which can be guessed; a secret of
    256 random bits cannot, so that SHA-256 is enough, and as fast as each request needs it."""
    return hashlib.sha256(secret.encode()).digest()


def valid_owner(owner: str) -> bool:
    """Whether a text can be an owner's name. The store reserves names with control characters for itself."""
    return 0 < len(owner) <= MAX_OWNER_LENGTH and owner.isprintable() and owner == owner.strip()


def now() -> datetime:
    """The time in UTC."""
    return datetime.now(UTC)


async def create_token(
    store: SessionStore, name: str, owner: str, scopes: Sequence[str], expires_at: datetime | None = None
) -> str:
    """Store a new token; returns its secret, which is stored nowhere. Raises BadInputError."""
    from contextstash_storage.notes import Token  # loads pydantic, which the command line need not for scopes

    if not _NAME.fullmatch(name):
        raise BadInputError("The name of a token has up to 64 letters, digits and . _ @ + -.")
    if not valid_owner(owner):
        raise BadInputError(f"The name of an owner has 1 to {MAX_OWNER_LENGTH} printable characters.")
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    ordered = tuple(scope for scope in SCOPES if scope in scopes)
    if not await store.add_token(
        Token(name=name, owner=owner, scopes=ordered, created_at=now(), expires_at=expires_at), digest(secret)
    ):
        raise BadInputError(f"There is a token {name} already. Choose another name, or revoke it first.")
    return secret


async def verified(store: SessionStore, secret: str) -> Token | None:
    """The token with this secret, None if there is none or it has expired."""
    token = await store.find_token(digest(secret)) if _SECRET.fullmatch(secret) else None
    return None if token is None or (token.expires_at is not None and token.expires_at <= now()) else token
