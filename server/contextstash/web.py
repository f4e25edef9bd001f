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
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
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

_OF_THIS_MACHINE = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\])(?::[0-9]{1,5})?", re.IGNORECASE)
"""Any port, because a forwarded one differs from the port that the server listens on."""


_IMPLIED = (":443", ":80")
"""The ports of https, and of http if the proxy passes on what it was sent there."""


@dataclass(frozen=True, slots=True)
class OwnHosts:
    """The names of this machine, and that of the proxy in front of it: its host with its port, as browsers send it."""

    public: str | None = None

    def has_host(self, host: str) -> bool:
        """Whether a Host header names this server, or the proxy. Some clients write the port of https or http too."""
        public = () if self.public is None else (self.public, *(self.public + port for port in _IMPLIED))
        return bool(_OF_THIS_MACHINE.fullmatch(host)) or host.lower() in public

    def has_origin(self, origin: str) -> bool:
        """Whether an Origin header names this server, another page of this machine, or no page of the web: editors send
        origins such as `vscode-file://vscode-app`."""
        scheme, _, host = origin.partition("://")
        if scheme.lower() not in ("http", "https"):
            return origin != "null" and bool(host)
        if _OF_THIS_MACHINE.fullmatch(host):
            return True
        return self.public is not None and origin.lower() in (f"https://{self.public}", f"https://{self.public}:443")


class HostChecks:
    """ASGI middleware in front of all that this module serves: refuses requests under another name (421), and
    those that a browser sends for another site's page (403). The `unchecked` paths come by any name."""

    def __init__(self, app: ASGIApp, hosts: OwnHosts | None = None, unchecked: Container[str] = ()) -> None:
        self._app = app
        self._hosts = hosts or OwnHosts()
        self._unchecked = unchecked

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] not in self._unchecked:
            headers = Headers(scope=scope)
            if not self._hosts.has_host(headers.get("host", "")):
                answer = PlainTextResponse("This server is not reached under this name (the Host header).", 421)
            elif not all(map(self._hosts.has_origin, headers.getlist("origin"))):
                answer = PlainTextResponse("This request comes from another site's page (the Origin header).", 403)
        await answer(scope, receive, send)


def hosts_behind(public_url: str | None) -> OwnHosts:
    """The names of a server that a proxy makes public under this address. Raises BadInputError if it is not one that
    browsers and clients can trust."""
    if public_url is None:
        return OwnHosts()
    parts = urlsplit(public_url)
    if parts.scheme != "https" or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise BadInputError(
            f"The public address must be like https://stash.example/mcp, not '{public_url}': tokens must not cross a"
            " network unencrypted."
        )
    return OwnHosts(parts.netloc.lower().removesuffix(":443"))


SHUTDOWN_SECONDS = 5
"""Seconds that open requests may continue after a signal; then they are cut off."""

BACKLOG = 2_048
"""Connections that may wait to be accepted, as uvicorn's default: after another server's end all its clients come at
once."""


def serve(
    app: Callable[[], Awaitable[Any]],
    host: str,
    port: int,
    announce: Callable[[str], str],
    *,
    settings: Mapping[str, Any] | None = None,
    hosts: OwnHosts | None = None,
    unchecked: Container[str] = (),
) -> None:
    """Serve the application that `app` returns, on a free port if `port` is 0. `announce` turns the address into a line
    for standard error. `settings` are uvicorn's. With `hosts` that have a public name, another host may be served,
    behind a proxy that does TLS; the `unchecked` paths come by any name. Raises BadInputError if the host is not this
    machine or the port cannot be used."""
    own_interpreter()
    hosts = hosts or OwnHosts()
    if host not in LOOPBACK and hosts.public is None:
        raise BadInputError(
            f"Serving on {host} would show every session to everyone who can reach it."
            f" Serve on {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}; for others `contextstash serve --public-url`,"
            " with a token for each and a reverse proxy for TLS."
        )
    with _listening(host, port) as listener:
        named = f"[{host}]" if ":" in host else host
        sys.stderr.write(announce(f"http://{named}:{listener.getsockname()[1]}") + "\n")
        sys.stderr.flush()
        server = _Serving()
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, server.end)
        asyncio.run(server.run(app, listener, settings or {}, hosts, unchecked))


@contextmanager
def serving(app: Callable[[], Awaitable[Any]], settings: Mapping[str, Any], end_seconds: float) -> Iterator[int]:
    """Serve the application in a thread of this process while the block runs, on a free port, which is yielded. Whoever
    connects before it is ready waits; if it ends, they are refused. It has `end_seconds` to end behind the block."""
    own_interpreter()
    server = _Serving()
    with _listening(LOOPBACK[0], 0) as listener:
        port = listener.getsockname()[1]

        def work() -> None:
            try:
                with closing(listener):
                    asyncio.run(server.run(app, listener, settings, OwnHosts()))
            except Exception as error:  # its trace would be written into the terminal of whoever runs the block
                logger.error("the server has ended: %s", type(error).__name__)

        thread = threading.Thread(target=work, daemon=True)
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
        listener.listen(BACKLOG)
        yield listener


class _Server(uvicorn.Server):
    """Leaves the signals to us: the MCP server's event streams replace uvicorn's handler by one that cuts off running
    responses, and uvicorn would raise the signals again at its end, so that the exit code would not be 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Serving:
    """A server that can be told to end before it has begun."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._ended = False

    async def run(
        self,
        app: Callable[[], Awaitable[Any]],
        listener: socket.socket,
        settings: Mapping[str, Any],
        hosts: OwnHosts,
        unchecked: Container[str] = (),
    ) -> None:
        """Serve until the end, with the running requests."""
        checked = HostChecks(await app(), hosts, unchecked)
        # Not httptools, which uvicorn would take if it is installed: of a request with `Upgrade: h2c`, as Java's
        # HttpClient sends it, it loses the body.
        known = {"http": "h11", "timeout_graceful_shutdown": SHUTDOWN_SECONDS, "log_config": None, "access_log": False}
        self._server = _Server(uvicorn.Config(checked, **{**known, **settings}))
        self._server.should_exit = self._ended
        await self._server.serve(sockets=[listener])

    def end(self, *_: Any) -> None:
        """End: also as a signal's handler."""
        self._ended = True
        if self._server is not None:
            self._server.should_exit = True
