"""HTTP on this machine: an application is served until a signal, under its own names alone.

A request under another name, or from another site's page, is refused: a name that merely resolves to this machine could
belong to a site that attacks by DNS rebinding. Names are compared exactly: a check for a beginning would accept
`localhost:3000.evil.com`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from contextstash.base.process import own_interpreter
from contextstash_storage.errors import BadInputError

logger = logging.getLogger(__name__)

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""This machine, as a host is written in an address that was parsed."""


def is_trusted(url: str) -> bool:
    """Whether requests to this address are encrypted, or stay on this machine."""
    parts = urlsplit(url)
    return bool(parts.scheme == "https" and parts.hostname) or (parts.scheme == "http" and parts.hostname in LOOPBACK)


_HERE = r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?"
"""This machine as headers name it. Any port, because a forwarded one differs from the port that the server listens
on."""


class HostChecks:
    """ASGI middleware in front of all that this module serves: refuses requests under another name (421), and those
    that a browser sends for another site's page (403). `public` is the name of the proxy in front: its host with its
    port, as browsers send it. The `unchecked` paths come by any name."""

    def __init__(self, app: ASGIApp, public: str | None = None, unchecked: Container[str] = ()) -> None:
        self._app = app
        self._unchecked = unchecked
        there = re.escape(public) if public else "(?!)"  # matches nothing
        # Some clients write the port of https or http too. Editors send origins such as `vscode-file://vscode-app`.
        self._host = re.compile(rf"{_HERE}|{there}(?::443|:80)?", re.IGNORECASE)
        self._origin = re.compile(rf"https?://{_HERE}|https://{there}(?::443)?|(?!https?://).*?://.+", re.IGNORECASE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] not in self._unchecked:
            headers = Headers(scope=scope)
            if not self._host.fullmatch(headers.get("host", "")):
                answer = PlainTextResponse("This server is not reached under this name (the Host header).", 421)
            elif not all(map(self._origin.fullmatch, headers.getlist("origin"))):
                answer = PlainTextResponse("This request comes from another site's page (the Origin header).", 403)
        await answer(scope, receive, send)


def public_host(public_url: str) -> str:
    """The name that a proxy gives a server which it makes public under this address. Raises BadInputError if it is not
    one that browsers and clients can trust."""
    parts = urlsplit(public_url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInputError(
            f"The public address must be like https://stash.example/mcp, not '{public_url}': tokens must not cross a"
            " network unencrypted."
        )
    return parts.netloc.lower().removesuffix(":443")


SHUTDOWN_SECONDS = 5
"""Seconds that open requests may continue after a signal; then they are cut off."""

MakeApp = Callable[[], AbstractAsyncContextManager[ASGIApp]]
"""Opens an application in the loop in which it is served, and closes what it uses at the end."""


def serve(
    app: MakeApp,
    host: str,
    port: int,
    announce: Callable[[str], str],
    *,
    settings: Mapping[str, Any] | None = None,
    public: str | None = None,
    unchecked: Container[str] = (),
) -> None:
    """Serve an application until a signal, on a free port if `port` is 0. `announce` turns the address into a line for
    standard error. `settings` are uvicorn's. With a `public` name another host may be served, behind a proxy that does
    TLS; the `unchecked` paths come by any name. Raises BadInputError if the host is not this machine or the port cannot
    be used."""
    if host not in LOOPBACK and public is None:
        raise BadInputError(
            f"Serving on {host} would show every session to everyone who can reach it."
            f" Serve on {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}; for others `contextstash serve --public-url`,"
            " with a token for each and a reverse proxy for TLS."
        )
    server = _Server(settings or {})
    with _listening(host, port) as listener:
        named = f"[{host}]" if ":" in host else host
        sys.stderr.write(announce(f"http://{named}:{listener.getsockname()[1]}") + "\n")
        sys.stderr.flush()
        for each in (signal.SIGINT, signal.SIGTERM):
            # Not a method of the server: by that the MCP server's event streams find it, and cut off what still runs.
            signal.signal(each, lambda *_: server.end())
        asyncio.run(server.serve_app(app, listener, public, unchecked))


@contextmanager
def serving(app: MakeApp, settings: Mapping[str, Any], end_seconds: float) -> Iterator[int]:
    """Serve an application in a thread of this process while the block runs, on a free port, which is yielded. Whoever
    connects before it is ready waits; if it ends, they are refused. It has `end_seconds` to end behind the block."""
    server = _Server(settings)
    with _listening(LOOPBACK[0], 0) as listener:

        def work() -> None:
            try:
                with closing(listener):
                    asyncio.run(server.serve_app(app, listener))
            except Exception as error:  # its trace would be written into the terminal of whoever runs the block
                logger.error("the server has ended: %s", type(error).__name__)

        thread = threading.Thread(target=work, daemon=True)
        port: int = listener.getsockname()[1]
        thread.start()
        try:
            yield port
        finally:
            server.end()
            thread.join(end_seconds)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets that name TCP as their protocol. With it, a response in two
    # parts waits for the client's delayed acknowledgement: 40 ms for each request.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInputError(
                f"Port {port} on {host} cannot be used ({error}). Choose another, or 0 for any free one."
            ) from error
        listener.listen()
        yield listener


class _Server(uvicorn.Server):
    """Leaves the signals to us: the MCP server's event streams replace uvicorn's handler too, and uvicorn would raise
    the signals again at its end, so that the exit code would not be 0."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        own_interpreter()
        # Not httptools, which uvicorn would take if it is installed: of a request with `Upgrade: h2c`, as Java's
        # HttpClient sends it, it loses the body.
        known = {"http": "h11", "timeout_graceful_shutdown": SHUTDOWN_SECONDS, "log_config": None, "access_log": False}
        super().__init__(uvicorn.Config("", **{**known, **settings}))

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def serve_app(
        self, app: MakeApp, listener: socket.socket, public: str | None = None, unchecked: Container[str] = ()
    ) -> None:
        """Serve until the end, with the running requests."""
        async with app() as opened:
            self.config.app = HostChecks(opened, public, unchecked)
            await self.serve(sockets=[listener])

    def end(self) -> None:
        """End, also before it has begun."""
        self.should_exit = True
