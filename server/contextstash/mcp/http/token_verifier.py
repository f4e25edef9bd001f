"""Verifies the tokens of requests, for the SDK: those that `contextstash token` made, and an issuer's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken, TokenVerifier
from starlette.responses import PlainTextResponse

from contextstash.mcp.http.owners import OwnerStashes
from contextstash.web.access_tokens import PREFIX
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

CHECK_SECONDS = 2.0
"""How often the tokens of running requests are verified again, and how long a request must run for that: most end
before. A longer time lets a revoked token's stream run longer."""


@dataclass(eq=False)
class _Running:
    """A request that runs."""

    token: str
    has_run: bool = False
    started: bool = False
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)


class EndedWithToken:
    """ASGI middleware behind the authentication. A request ends when its token is revoked or expires."""

    def __init__(self, app: Any, verifier: TokenVerifier, seconds: float = CHECK_SECONDS) -> None:
        self._app = app
        self._verifier = verifier
        self._seconds = seconds
        self._running: set[_Running] = set()
        self._verifying: set[str] = set()
        self._checking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        if scope["type"] != "http" or not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        running = _Running(user.access_token.token)

        async def noted(message: Any) -> None:
            running.started = True
            await send(message)

        self._running.add(running)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check())
        try:
            with running.scope:
                await self._app(scope, receive, noted)
        finally:
            self._running.discard(running)
        if running.scope.cancelled_caught:
            logger.info("a request was ended: its token is not valid any more")
            await _end(running, scope, receive, send)

    async def _check(self) -> None:
        """End what must end, as long as there are requests. No token waits for what is found out about another."""
        while self._running:  # again, because one may begin while the group waits for its cancelled tasks
            async with anyio.create_task_group() as group:
                while self._running:
                    await asyncio.sleep(self._seconds)
                    for token in {each.token for each in self._running if each.has_run} - self._verifying:
                        self._verifying.add(token)
                        group.start_soon(self._verify, token)
                    for each in self._running:
                        each.has_run = True
                group.cancel_scope.cancel()

    async def _verify(self, token: str) -> None:
        """End the requests of a token that is not valid. They continue if the token cannot be verified at the
        moment."""
        try:
            found = await self._verifier.verify_token(token)
            if found is None or _has_expired(found):
                for each in [each for each in self._running if each.token == token]:
                    each.scope.cancel()
        except Exception as error:
            if not isinstance(error, ContextstashError):  # which its cause has logged
                logger.warning("a token of a running request cannot be verified again (%s)", type(error).__name__)
        finally:
            self._verifying.discard(token)


def _has_expired(token: AccessToken) -> bool:
    """As the SDK decides it for new requests: what was found out about a token may be remembered longer than that."""
    return token.expires_at is not None and token.expires_at < time.time()


async def _end(running: _Running, scope: Any, receive: Any, send: Any) -> None:
    """End the response, as far as it was sent."""
    if running.started:
        with suppress(Exception):  # the server raises if the response had ended
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    headers = {"www-authenticate": 'Bearer error="invalid_token"'}
    await PlainTextResponse("This token is not valid any more.", 401, headers)(scope, receive, send)


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

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Closes the connections to the issuer at the end."""
        try:
            yield
        finally:
            if self._opaque is not None:
                await self._opaque.close()


def _is_jwt(token: str) -> bool:
    """Whether a token has the form of a JWT: three parts, the first of which is a JSON object in base64, which begins
    with these letters."""
    return token.count(".") == 2 and token.startswith("eyJ")
