"""Tokens of a server's clients: who presents one, which sessions it opens, and what it allows.

Those that `contextstash token` made are in the database, as hashes; an authorization server's are JWTs.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from shlex import quote
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.context import CallNext, HandlerResult
from mcp.types import INVALID_REQUEST, CallToolResult, TextContent

from contextstash.mcp.lazy_stash import LazyStash, OpenStash
from contextstash.operations import DEFAULT_SCOPES, OPERATIONS, SCOPES
from contextstash.session.access import BoundedCache
from contextstash.web import is_trusted
from contextstash_storage.errors import BadInputError, ContextstashError
from contextstash_storage.records import LOCAL_OWNER

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash_storage.notes import Token
    from contextstash_storage.store import SessionStore

logger = logging.getLogger(__name__)

PREFIX = "cst_"
"""Begins each secret, so that scanners for leaked secrets find it."""

SECRET_BYTES = 32

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")

MAX_OWNER_LENGTH = 200


def digest(secret: str) -> bytes:
    """The hash under which a token is stored. Slow, salted hashes protect passwords, which can be guessed; a secret of
    256 random bits cannot, so that SHA-256 is enough, and as fast as each request needs it."""
    return hashlib.sha256(secret.encode()).digest()


def valid_owner(owner: str) -> bool:
    """Whether a text can be an owner's name. The store reserves names with control characters for itself."""
    return 0 < len(owner) <= MAX_OWNER_LENGTH and owner.isprintable() and owner == owner.strip()


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
    token = Token(name=name, owner=owner, scopes=tuple(scopes), created_at=datetime.now(UTC), expires_at=expires_at)
    if not await store.add_token(token, digest(secret)):
        raise BadInputError(f"There is a token {name} already. Choose another name, or revoke it first.")
    return secret


async def verified(store: SessionStore, secret: str) -> Token | None:
    """The token with this secret, None if there is none or it has expired."""
    token = await store.find_token(digest(secret))
    return None if token is None or (token.expires_at is not None and token.expires_at <= datetime.now(UTC)) else token


ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with a public key. With a symmetric one, a token could be signed with the public key itself."""

NOT_VALID = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""The errors of an invalid token. The last three come from odd JSON, which PyJWT does not expect."""

LEEWAY_SECONDS = 30
"""Seconds by which the clocks of two machines may differ; with a larger difference valid tokens are refused."""


MAX_OWNERS = 64
"""Owners whose sessions stay in memory between requests, each up to 8 sessions of some 2 MB. With more active owners,
sessions are read from the database again."""


class OwnerStashes(LazyStash):
    """Opens one database, and returns of it only what belongs to the owner of the request in hand. Each tool, resource,
    prompt and completion takes its stash from here, so that none can name another owner."""

    def __init__(self, open_stash: OpenStash) -> None:
        super().__init__(open_stash)
        self._owned: BoundedCache[str, Stash] = BoundedCache(MAX_OWNERS)

    async def get(self) -> Stash:
        """The stash of the request's owner. Raises BadInputError if the request has none."""
        token = get_access_token()
        if token is None or not token.subject:
            raise BadInputError("This request has no token: send 'Authorization: Bearer TOKEN'.")
        opened, owner = await self.whole(), token.subject
        if owner == opened.store.owner:
            return opened
        # The last used ones stay. One that is removed meanwhile works on for those who have it.
        return self._owned.set(owner, self._owned.get(owner) or opened.for_owner(owner))

    async def whole(self) -> Stash:
        """The stash of this machine's user, which was opened."""
        return await super().get()

    async def aclose(self) -> None:
        owned = list(self._owned.values())
        self._owned.clear()
        for stash in owned:
            await stash.reducer.close()
        await super().aclose()


WITHOUT_SCOPE = frozenset(f"{each}/list" for each in ("tools", "prompts", "resources", "resources/templates")) | {
    "initialize",
    "ping",
    "server/discover",
    "logging/setLevel",
}
"""Requests that show nothing of a session: any valid token will do. All other requests but calls of tools read."""


async def check_scope(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware of a server over HTTP. Refuses what the request's token does not allow."""
    if ctx.request_id is None or ctx.method in WITHOUT_SCOPE:
        return await call_next(ctx)
    name = (ctx.params or {}).get("name") if ctx.method == "tools/call" else None
    operation = OPERATIONS.get(name) if isinstance(name, str) else None
    needed = operation.scope if operation else "read"
    token = get_access_token()
    if token is not None and needed in token.scopes:
        return await call_next(ctx)
    held = ", ".join(token.scopes) if token is not None and token.scopes else "none"
    scopes = "".join(f" --scope {each}" for each in SCOPES) if needed not in DEFAULT_SCOPES else ""
    owner = quote((token.subject if token else None) or "OWNER")
    text = (
        f"{name or ctx.method} needs the scope {needed}; this token has: {held}."
        f" Use another token: contextstash token create NAME --owner {owner}{scopes}"
    )
    if name is None:
        raise MCPError(INVALID_REQUEST, text)
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


class StoredTokens:
    """The SDK's TokenVerifier for the tokens in the database, and for others if `issued` verifies those."""

    def __init__(self, stashes: OwnerStashes, issued: IssuedTokens | None = None) -> None:
        self._stashes, self._issued = stashes, issued

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it, with its owner as its subject; None if it is not valid."""
        if self._issued is not None and not token.startswith(PREFIX):
            return await self._issued.verify_token(token)
        found = await verified((await self._stashes.whole()).store, token)
        if found is None:
            return None
        expires = None if found.expires_at is None else int(found.expires_at.timestamp())
        return AccessToken(
            token=token, client_id=found.name, scopes=list(found.scopes), expires_at=expires, subject=found.owner
        )


class IssuedTokens:
    """The SDK's TokenVerifier for an issuer's tokens in the form of a JWT (RFC 9068). `audience` is this server's
    public address, for which they must be issued; their `sub` is their owner."""

    def __init__(self, issuer: str, audience: str) -> None:
        self._issuer, self._audience = issuer, audience
        self._keys: jwt.PyJWKClient | None = None

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it, None if it is not valid. Raises ContextstashError without its keys."""
        try:
            return await anyio.to_thread.run_sync(self._verified, token)
        except jwt.PyJWKClientConnectionError as error:
            raise self._unavailable(str(error)) from None
        except NOT_VALID:
            return None

    def _verified(self, token: str) -> AccessToken | None:
        """A token whose claims hold; None if they name no owner who may have sessions here. A token that is bound to a
        key of its client (`cnf`) is refused, because the client does not prove that it has the key."""
        if self._keys is None:
            self._keys = jwt.PyJWKClient(self._keys_address())
        key = self._keys.get_signing_key_from_jwt(token)
        claims = jwt.decode(
            token,
            key,
            algorithms=[key.algorithm_name] if key.algorithm_name in ALGORITHMS else [],
            audience=[self._audience, self._audience.removesuffix("/")],
            issuer=self._issuer,
            leeway=LEEWAY_SECONDS,
            options={"require": ["exp", "iss", "aud", "sub"]},
        )
        owner = claims["sub"]
        if not valid_owner(owner) or owner == LOCAL_OWNER or "cnf" in claims:
            return None
        # A text in RFC 9068; some servers write `scp`, as a list too.
        given = claims.get("scope") or claims.get("scp") or ""
        words = given.split() if isinstance(given, str) else given
        return AccessToken(
            token=token,
            client_id=str(claims.get("client_id") or owner),
            scopes=[scope for scope in SCOPES if scope in words],
            expires_at=int(claims["exp"]) + LEEWAY_SECONDS,  # the SDK compares it once more, without one
            subject=owner,
            claims={"iss": self._issuer},
        )

    def _keys_address(self) -> str:
        """The `jwks_uri` of the metadata: RFC 8414 puts the well-known part before the path, OpenID Connect behind it.
        Raises ContextstashError."""
        parts = urlsplit(self._issuer)
        path = parts.path.rstrip("/")
        for place in (
            f"/.well-known/oauth-authorization-server{path}",
            f"{path}/.well-known/openid-configuration",
        ):
            try:
                read = httpx2.get(f"{parts.scheme}://{parts.netloc}{place}").json()
            except httpx2.HTTPError as error:
                raise self._unavailable(type(error).__name__) from None
            except ValueError:  # some sites have a page at every address
                continue
            keys = str(read.get("jwks_uri")) if isinstance(read, dict) and read.get("issuer") == self._issuer else ""
            if is_trusted(keys):
                return keys
        raise self._unavailable("no metadata at its well-known addresses name it, and a jwks_uri that can be trusted")

    def _unavailable(self, reason: str) -> ContextstashError:
        logger.warning("tokens cannot be verified: the keys of %s cannot be read (%s)", self._issuer, reason)
        return ContextstashError(f"The keys of {self._issuer} cannot be read.")


def check_issuer(issuer: str) -> None:
    """Raise BadInputError if what is read from this address could be forged on the way."""
    if not is_trusted(issuer):
        raise BadInputError(f"The issuer must be like https://login.example, not '{issuer}'.")
