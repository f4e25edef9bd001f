"""Tokens of a server's clients: they are made here, hashed before they are stored, and verified."""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash.base.background_tasks import BackgroundTasks
from contextstash.base.bounded_cache import BoundedCache
from contextstash.base.files import PRIVATE, replace_file
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

TRUSTED_SECONDS = 2.0
"""How long a token counts as valid after it was looked up, so that not each request reads the database. A revoked token
is refused after this time at the latest. That is shorter than it takes to type the command that revokes it."""

MAX_TRUSTED = 4_096
"""Tokens that are remembered between requests, some 500 bytes each."""

USE_SECONDS = 60.0
"""How exactly it is stored when a token was last used: each time would be a write for each request."""

LOCAL_TOKEN = "local"
"""The name of the token that a server makes for the clients of its own machine."""

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
    if not await store.add_token(Token(name, owner, ordered, now(), expires_at), digest(secret)):
        raise BadInputError(f"There is a token {name} already. Choose another name, or revoke it first.")
    return secret


async def local_token(store: SessionStore, file: Path) -> bool:
    """Make sure that the clients of this machine have a token in `file`, if no other is stored: False if others are,
    and the file holds none. It may do everything with the sessions of the machine's user, who can read and change the
    database anyway. Raises OSError if the file cannot be written."""
    known = await asyncio.to_thread(read_secret, file)
    if known is not None and await TokenVerification(store).verify(known) is not None:
        return True
    if await store.read_tokens():
        return False
    from contextstash_storage.records import LOCAL_OWNER  # as above

    secret = await create_token(store, LOCAL_TOKEN, LOCAL_OWNER, SCOPES)
    try:
        await asyncio.to_thread(replace_file, file, f"{secret}\n".encode(), PRIVATE, follow_links=False)
    except OSError:
        await store.remove_token(LOCAL_TOKEN)
        raise
    return True


def read_secret(file: Path) -> str | None:
    """The secret in a file, None if it cannot be read."""
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None


class TokenVerification:
    """Looks tokens up, and remembers them for a moment."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._trusted: BoundedCache[bytes, tuple[float, Token]] = BoundedCache(MAX_TRUSTED)
        self._noted: BoundedCache[str, float] = BoundedCache(MAX_TRUSTED)
        self._storing = BackgroundTasks("storing the use of a token")

    async def verify(self, secret: str) -> Token | None:
        """The token with this secret, None if there is none or it has expired."""
        token = await self._looked_up(digest(secret)) if _SECRET.fullmatch(secret) else None
        return None if token is None or _has_expired(token) else token

    async def _looked_up(self, sha256: bytes) -> Token | None:
        trusted = self._trusted.get(sha256)
        if trusted is not None and time.monotonic() - trusted[0] < TRUSTED_SECONDS:
            return trusted[1]
        token = await self._store.find_token(sha256)
        if token is None:
            self._trusted.pop(sha256, None)
            return None
        self._trusted.set(sha256, (time.monotonic(), token))
        return token

    def note_use(self, token: Token) -> None:
        """Store in the background that a token is used now, unless that was stored a moment ago. No request waits for
        it, or fails with it."""
        noted = self._noted.get(token.name)
        if noted is None or time.monotonic() - noted >= USE_SECONDS:
            self._noted.set(token.name, time.monotonic())
            self._storing.start(self._store.note_token_use(token.name, now()))


def _has_expired(token: Token) -> bool:
    return token.expires_at is not None and token.expires_at <= now()
