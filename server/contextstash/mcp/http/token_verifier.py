"""Verifies the tokens of requests, for the SDK: those that `contextstash token` made, and an issuer's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mcp.server.auth.provider import AccessToken, TokenVerifier

from contextstash.mcp.http.owners import OwnerStashes
from contextstash.web.access_tokens import PREFIX

if TYPE_CHECKING:
    from contextstash.mcp.http.introspection import IntrospectionVerifier


class StoredTokens:
    """The SDK's TokenVerifier for the tokens in the database."""

    def __init__(self, stashes: OwnerStashes) -> None:
        self._stashes = stashes

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it, with its owner as its subject; None if it is not valid."""
        verification = await self._stashes.verification()
        found = await verification.verify(token)
        if found is None:
            return None
        verification.note_use(found)
        expires = None if found.expires_at is None else int(found.expires_at.timestamp())
        return AccessToken(
            token=token, client_id=found.name, scopes=list(found.scopes), expires_at=expires, subject=found.owner
        )


class EitherTokens:
    """The SDK's TokenVerifier for the tokens in the database and those of an issuer: in the form of a JWT, and `opaque`
    ones if the issuer can be asked about them."""

    def __init__(
        self, stored: TokenVerifier, issued: TokenVerifier, opaque: IntrospectionVerifier | None = None
    ) -> None:
        self._stored = stored
        self._issued = issued
        self._opaque = opaque

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it; None if it is not valid."""
        if token.startswith(PREFIX):
            return await self._stored.verify_token(token)
        if self._opaque is not None and not _is_jwt(token):
            return await self._opaque.verify_token(token)
        return await self._issued.verify_token(token)

    async def close(self) -> None:
        """Close the connections to the issuer."""
        if self._opaque is not None:
            await self._opaque.close()


def _is_jwt(token: str) -> bool:
    """Whether a token has the form of a JWT: three parts, the first of which is a JSON object in base64, which begins
    with these letters."""
    return token.count(".") == 2 and token.startswith("eyJ")
