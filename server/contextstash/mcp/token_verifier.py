"""Verifies the tokens of requests, for the SDK: those that `contextstash token` made, and an issuer's."""

from __future__ import annotations

from mcp.server.auth.provider import AccessToken, TokenVerifier

from contextstash.access_tokens import PREFIX
from contextstash.mcp.owners import OwnerStashes


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
    """The SDK's TokenVerifier for the tokens in the database and those of an issuer."""

    def __init__(self, stored: TokenVerifier, issued: TokenVerifier) -> None:
        self._stored = stored
        self._issued = issued

    async def verify_token(self, token: str) -> AccessToken | None:
        """The token as the SDK describes it; None if it is not valid."""
        return await (self._stored if token.startswith(PREFIX) else self._issued).verify_token(token)
