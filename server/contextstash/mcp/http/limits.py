"""How many requests a token may make a second, and how many of an owner may run."""

from __future__ import annotations

import math
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import PlainTextResponse

from contextstash.web.request_limits import MAX_RUNNING_OF_OWNER, Buckets, ConcurrencyLimit


class RunningLimit:
    """ASGI middleware behind the authentication. Too many requests of an owner at a time get status 429."""

    def __init__(self, app: Any, most: int = MAX_RUNNING_OF_OWNER) -> None:
        self._app = app
        self._places = ConcurrencyLimit(most)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        with self._places.take(user.access_token.subject or "") as is_free:
            await (self._app if is_free else self._refusal())(scope, receive, send)

    def _refusal(self) -> PlainTextResponse:
        text = f"{self._places.most} requests and streams of this token's owner run already."
        return PlainTextResponse(f"{text} End some, or try again later.", 429, {"retry-after": "1"})


class RateLimit:
    """ASGI middleware behind the authentication. Too many requests of a token get status 429."""

    def __init__(self, app: Any, rate: float) -> None:
        """`rate` is in requests a second."""
        self._app = app
        self._rate = rate
        self._buckets = Buckets(rate)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        wait = self._buckets.take(_name(user)) if isinstance(user, AuthenticatedUser) else 0.0
        if not wait:
            await self._app(scope, receive, send)
            return
        text = f"This token may make {self._rate:g} requests a second. Try again in a moment."
        headers = {"retry-after": str(math.ceil(wait))}
        await PlainTextResponse(text, 429, headers)(scope, receive, send)


def _name(user: AuthenticatedUser) -> str:
    """The name of a token's bucket, with its owner: an issuer's tokens name the program, which many owners use."""
    return f"{user.access_token.client_id} {user.access_token.subject}"
