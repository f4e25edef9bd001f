"""OAuth: access tokens that a team's own authorization server issued, verified by that server's public keys."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any

import anyio
import jwt
from mcp.server.auth.provider import AccessToken

from contextstash.mcp.http.oauth_issuer import (
    LEEWAY_SECONDS,
    Failures,
    IssuerError,
    OAuthOptions,
    access_token,
    issuer_client,
    read_metadata,
    read_reply,
)

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Algorithms with a public key. With a symmetric one, a token could be signed with the public key itself."""

NOT_VALID = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)
"""The errors of an invalid token. The last three come from odd JSON, which PyJWT does not expect."""

SIGNED = (
    jwt.ExpiredSignatureError,
    jwt.ImmatureSignatureError,
    jwt.InvalidAudienceError,
    jwt.InvalidIssuerError,
    jwt.MissingRequiredClaimError,
)
"""The errors of a token that the issuer signed and that is not valid here. They are logged, those of invented tokens
are not. PyJWT's texts hold nothing of the token but names of claims."""

KEYS_SECONDS = 3_600.0
"""Seconds after which keys are read again. A withdrawn key is accepted until then."""

RETRY_SECONDS = 30.0
"""Seconds between two reads of the keys because of an unknown key id, which may be invented."""

logger = logging.getLogger(__name__)


class OAuthTokens:
    """The SDK's TokenVerifier for tokens in the form of a JWT (RFC 9068)."""

    def __init__(self, options: OAuthOptions) -> None:
        self._options = options
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._read_at = -math.inf
        self._failures = Failures(options.issuer)
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
                audience=self._options.audiences,
                issuer=self._options.issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", self._options.owner_claim]},
            )
            return access_token(token, claims, self._options)
        except NOT_VALID as error:
            if isinstance(error, SIGNED):
                logger.info("a token of %s was refused: %s", self._options.issuer, error)
            return None

    async def _key(self, key_id: str | None) -> jwt.PyJWK | None:
        """The public key with this id, None if the issuer has none. A known key is returned without waiting
        for the issuer, even while another request has it asked about an unknown key id."""
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
        self._failures.check()
        try:
            self._keys = await _read_keys(self._options.issuer)
        except IssuerError as error:
            self._failures.note()
            logger.warning("tokens cannot be verified: %s", error)
            raise
        self._read_at = time.monotonic()


async def _read_keys(issuer: str) -> dict[str | None, jwt.PyJWK]:
    """The issuer's keys by their ids, from the address in its metadata. Raises IssuerError."""
    try:
        async with issuer_client() as client:
            metadata = await read_metadata(client, issuer, "jwks_uri")
            status, read = await read_reply(client, "GET", metadata["jwks_uri"])
            if status != 200:
                raise IssuerError(f"they have status {status}")
            found = jwt.PyJWKSet.from_dict(read)
    except IssuerError as error:
        raise IssuerError(f"The keys of {issuer} cannot be read ({error}).") from None
    except (AttributeError, KeyError, TypeError, ValueError, jwt.PyJWTError) as error:
        raise IssuerError(f"The keys of {issuer} cannot be read ({type(error).__name__}).") from None
    return {key.key_id: key for key in found.keys if key.public_key_use in (None, "sig")}
