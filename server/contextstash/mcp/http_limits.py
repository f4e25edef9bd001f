"""How many requests a token may make a second, by a token bucket for each, and how many of an owner may run."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.responses import PlainTextResponse

from contextstash.service.bounded_cache import BoundedCache

MAX_BUCKETS = 4_096
"""Tokens whose use is remembered, some 200 bytes each."""

BURST_SECONDS = 2.0
"""How many seconds' requests a token may make at once: an agent calls its tools in groups. A guess."""


MAX_RUNNING_OF_OWNER = 200
"""Requests and open streams of one owner at a time; a guess. A fifth of what the server runs: nobody can use it up
alone, and a stream, which needs no further request, is not limited by any rate."""


class RunningLimit:
    """ASGI middleware behind the authentication. Too many requests of an owner at a time get status 429."""

    def __init__(self, app: Any, most: int = MAX_RUNNING_OF_OWNER) -> None:
        self._app = app
        self._most = most
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        owner = user.access_token.subject or ""
        if self._running[owner] >= self._most:
            text = f"{self._most} requests and streams of this token's owner run already. End some, or try again later."
            await PlainTextResponse(text, 429, {"retry-after": "1"})(scope, receive, send)
            return
        self._running[owner] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimit:
    """ASGI middleware behind the authentication. Too many requests of a token get status 429."""

    def __init__(self, app: Any, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` is in requests a second."""
        self._app = app
        self._rate = rate
        self._burst = max(1.0, rate * BURST_SECONDS)
        self._clock = clock
        self._buckets: BoundedCache[str, _Bucket] = BoundedCache(MAX_BUCKETS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        wait = self.take(_name(user)) if isinstance(user, AuthenticatedUser) else 0.0
        if not wait:
            await self._app(scope, receive, send)
            return
        text = f"This token may make {self._rate:g} requests a second. Try again in a moment."
        headers = {"retry-after": str(math.ceil(wait))}
        await PlainTextResponse(text, 429, headers)(scope, receive, send)

    def take(self, name: str) -> float:
        """Count a request of a token; the seconds that it must wait for it, 0 if it need not."""
        at = self._clock()
        bucket = self._buckets.get(name) or _Bucket(self._burst, at)
        bucket.left = min(self._burst, bucket.left + (at - bucket.at) * self._rate)
        bucket.at = at
        self._buckets.set(name, bucket)
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= 1
        return 0.0


def _name(user: AuthenticatedUser) -> str:
    """What a bucket belongs to: an issuer's tokens name the program, which many owners use."""
    return f"{user.access_token.client_id} {user.access_token.subject}"
