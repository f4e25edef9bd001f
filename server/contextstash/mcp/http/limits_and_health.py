"""Who is let in over HTTP by host and origin, limits of each token, and requests while the server stops. Tokens are
checked in token_verifier."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from contextstash.web.host_names import OwnHosts
from contextstash.web.request_limits import MAX_RUNNING_OF_OWNER, Buckets, ConcurrencyLimit
from contextstash_storage.errors import ContextstashError


class TokenLimits:
    """ASGI middleware behind the authentication. Too many requests of an owner at a time, or of a token in a second,
    get status 429."""

    def __init__(self, app: Any, rate: float, most: int = MAX_RUNNING_OF_OWNER) -> None:
        """`rate` is in requests a second, 0 for no limit."""
        self._app = app
        self._rate = rate
        self._buckets = Buckets(rate)
        self._places = ConcurrencyLimit(most)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        user = scope.get("user")
        if not isinstance(user, AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        token = user.access_token
        # The bucket's name has the owner in it: an issuer's tokens name the program, which many owners use.
        if self._rate and (wait := self._buckets.take(f"{token.client_id} {token.subject}")):
            text = f"This token may make {self._rate:g} requests a second. Try again in a moment."
            await _too_many(text, wait)(scope, receive, send)
            return
        with self._places.take(token.subject or "") as is_free:
            text = f"{self._places.most} requests and streams of this token's owner run already."
            respond = self._app if is_free else _too_many(f"{text} End some, or try again later.")
            await respond(scope, receive, send)


def _too_many(text: str, wait: float = 1.0) -> PlainTextResponse:
    return PlainTextResponse(text, 429, {"retry-after": str(math.ceil(wait))})


class HostChecks:
    """ASGI middleware: the Host header, and the Origin that browsers send, must name this server exactly."""

    def __init__(self, app: Any, hosts: OwnHosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and (refused := self._refused(Headers(scope=scope))) is not None:
            await refused(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, headers: Headers) -> PlainTextResponse | None:
        names = headers.getlist("host")
        if len(names) != 1 or not self._hosts.has_host(names[0]):
            return PlainTextResponse("This server is not reached under this name (the Host header).", 421)
        if not all(self._hosts.has_origin(origin) for origin in headers.getlist("origin")):
            return PlainTextResponse("This request comes from another site's page (the Origin header).", 403)
        return None


logger = logging.getLogger(__name__)

MAX_RUNNING = 1_000
"""Requests that run or wait at a time; further ones are refused with 503. They wait seconds at most: a process answers
some hundreds a second. Each holds its body in memory."""

DRAIN_SECONDS = 20.0
"""How long running requests may continue after SIGTERM: within the 30 s after which Kubernetes kills a process, by
default."""

READY_SECONDS = 5.0
"""Seconds that the store may take to respond while the server counts as ready."""

HEALTH, READINESS = "/healthz", "/readyz"


class Gate:
    """ASGI middleware around the whole server."""

    def __init__(self, app: Any, answers: Callable[[], Awaitable[object]], endpoint: str) -> None:
        """`answers` asks the store for something; `endpoint` is the path whose GET requests are streams that stay open
        until their client ends them."""
        self._app = app
        self._answers = answers
        self._endpoint = endpoint
        self._running = 0
        self._draining = False
        self._idle = anyio.Event()

    @property
    def running(self) -> int:
        """How many requests run."""
        return self._running

    async def drain(self) -> None:
        """Refuse new requests, and wait until the running ones have ended, for DRAIN_SECONDS at most."""
        self._draining = True
        with anyio.move_on_after(DRAIN_SECONDS):
            while self._running:
                self._idle = anyio.Event()
                await self._idle.wait()
        if self._running:
            logger.warning("%s requests were still running %.0f s after the signal", self._running, DRAIN_SECONDS)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] in (HEALTH, READINESS):
            await (await self._health(scope["path"]))(scope, receive, send)
            return
        if self._draining or self._running >= MAX_RUNNING:
            reason = "This server is stopping." if self._draining else "Too many requests are running."
            headers = {"retry-after": "1", "connection": "close"}
            await PlainTextResponse(f"{reason} Try again in a moment.", 503, headers)(scope, receive, send)
            return
        if scope["method"] == "GET" and scope["path"] == self._endpoint:
            await self._app(scope, receive, send)
            return
        await self._counted(scope, receive, send)

    async def _counted(self, scope: Any, receive: Any, send: Any) -> None:
        self._running += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._running -= 1
            if not self._running:
                self._idle.set()

    async def _health(self, path: str) -> PlainTextResponse:
        if path == HEALTH:
            return PlainTextResponse("ok\n")
        if self._draining:
            return PlainTextResponse("stopping\n", 503)
        try:
            with anyio.fail_after(READY_SECONDS):
                await self._answers()
        except (ContextstashError, TimeoutError) as error:
            logger.warning("not ready: the session store does not respond (%s)", type(error).__name__)
            return PlainTextResponse("the session store does not respond\n", 503)
        return PlainTextResponse("ready\n")
