"""OAuth: access tokens that a team's own authorization server issued, verified by that server's public keys."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import jwt
from mcp.server.auth.provider import AccessToken

from contextstash.access_tokens import valid_owner
from contextstash.own_hosts import LOOPBACK
from contextstash.token_scopes import SCOPES
from contextstash_storage.errors import BadInputError, ContextstashError
from contextstash_storage.records import LOCAL_OWNER

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Those with a public key. With any other, a token could be signed with what everybody knows."""

KEYS_SECONDS = 3_600.0
"""After which keys are read again, so that a withdrawn one is forgotten; a guess."""

RETRY_SECONDS = 30.0
"""How often keys may be read for a key id that is not known: anybody can make one up."""

FAILED_SECONDS = 5.0
"""How long an issuer that did not respond is not asked again: requests would wait for it one after another. A guess."""

FETCH_SECONDS = 10.0
LEEWAY_SECONDS = 30
"""By which the clocks of two machines may differ. Both are guesses."""


class IssuerError(ContextstashError):
    """The authorization server does not respond, or not as it should."""


@dataclass(frozen=True, slots=True)
class OAuthOptions:
    """Whose tokens are accepted. `audience` is this server's public address, for which they must be issued; the claim
    `owner_claim` names their owner."""

    issuer: str
    audience: str
    owner_claim: str = "sub"


def check_issuer(issuer: str) -> None:
    """Raise BadInputError if keys read from this address could be forged on the way."""
    parts = urlsplit(issuer)
    if not (parts.scheme == "https" and parts.hostname) and not _is_this_machine(issuer):
        raise BadInputError(f"The issuer must be like https://login.example, not '{issuer}'.")


def _is_this_machine(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in LOOPBACK


class OAuthTokens:
    """The SDK's TokenVerifier for tokens in the form of a JWT (RFC 9068)."""

    def __init__(self, options: OAuthOptions) -> None:
        self._options = options
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = -math.inf
        self._failed_at = -math.inf
        self._lock = anyio.Lock()

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it, None if it is not valid. Raises IssuerError if the keys cannot be read."""
        try:
            header = jwt.get_unverified_header(token)
            key = await self._key(header.get("kid"))
            if key is None or header.get("alg") not in ALGORITHMS:
                return None
            claims: Mapping[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name] if key.algorithm_name in ALGORITHMS else [],
                audience=[self._options.audience, self._options.audience.removesuffix("/")],
                issuer=self._options.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._options.owner_claim]},
            )
        except jwt.PyJWTError:
            return None
        owner = claims[self._options.owner_claim]
        if not isinstance(owner, str) or not valid_owner(owner) or owner == LOCAL_OWNER:
            return None
        client = claims.get("client_id") or claims.get("azp") or owner
        return AccessToken(
            token=token,
            client_id=str(client),
            scopes=_scopes(claims),
            expires_at=int(claims["exp"]),
            subject=owner,
            claims={"iss": self._options.issuer},
        )

    async def _key(self, key_id: str | None) -> jwt.PyJWK | None:
        """The public key with this id, None if the issuer has none. Whose key is known does not wait for the issuer,
        which anybody can have asked for a key id that they made up."""
        if self._is_due(key_id):
            async with self._lock:
                if self._is_due(key_id):
                    await self._read()
        return self._keys.get(key_id)

    def _is_due(self, key_id: str | None) -> bool:
        """Whether the keys must be read before this one is looked up."""
        age = time.monotonic() - self._read_at
        return age >= KEYS_SECONDS or (key_id not in self._keys and age >= RETRY_SECONDS)

    async def _read(self) -> None:
        """Read the keys, unless that failed a moment ago. Raises IssuerError."""
        if time.monotonic() - self._failed_at < FAILED_SECONDS:
            raise IssuerError(f"The keys of {self._options.issuer} could not be read a moment ago.")
        try:
            self._keys = await _read_keys(self._options.issuer)
        except IssuerError:
            self._failed_at = time.monotonic()
            raise
        self._read_at = time.monotonic()


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """The scopes of ours that a token has: `scope` is a text in RFC 9068, some servers write `scp`, as a list too."""
    given = claims.get("scope", claims.get("scp", ""))
    words = given.split() if isinstance(given, str) else given if isinstance(given, list) else []
    return [scope for scope in SCOPES if scope in words]


async def _read_keys(issuer: str) -> dict[str | None, jwt.PyJWK]:
    """The issuer's keys by their ids, from the address in its metadata. Raises IssuerError."""
    try:
        async with httpx2.AsyncClient(timeout=FETCH_SECONDS) as client:
            metadata = await _metadata(client, issuer)
            address = str(metadata["jwks_uri"])
            if metadata["issuer"] != issuer or not (address.startswith("https://") or _is_this_machine(address)):
                raise IssuerError(f"The metadata of {issuer} is that of another issuer.")
            reply = await client.get(address)
            reply.raise_for_status()
            found = jwt.PyJWKSet.from_dict(reply.json())
    except (httpx2.HTTPError, jwt.PyJWTError, ValueError, KeyError, TypeError) as error:
        raise IssuerError(f"The keys of {issuer} cannot be read ({type(error).__name__}).") from error
    return {key.key_id: key for key in found.keys if key.public_key_use in (None, "sig")}


async def _metadata(client: httpx2.AsyncClient, issuer: str) -> dict[str, Any]:
    """The issuer's metadata: RFC 8414 puts the well-known part before the path, OpenID Connect behind it."""
    parts = urlsplit(issuer)
    path = parts.path.rstrip("/")
    for address in (
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}",
        f"{parts.scheme}://{parts.netloc}{path}/.well-known/openid-configuration",
    ):
        reply = await client.get(address)
        if reply.status_code == 200:
            read: dict[str, Any] = reply.json()
            return read
    raise IssuerError(f"{issuer} has no metadata at its well-known addresses.")
