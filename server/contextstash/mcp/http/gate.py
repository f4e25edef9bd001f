"""The gate of the HTTP server: health checks, a limit of running requests, and the drain before the end."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from starlette.responses import PlainTextResponse

from contextstash_storage.errors import ContextstashError

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
