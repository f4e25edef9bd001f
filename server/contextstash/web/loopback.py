"""Serves an ASGI application over HTTP, on this machine only, until a signal stops it."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import uvicorn

from contextstash.base.serving_process import own_interpreter
from contextstash.web.host_names import LOOPBACK, HostChecks, OwnHosts
from contextstash_storage.errors import BadInputError

logger = logging.getLogger(__name__)

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
            f" Serve on {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}."
        )
    with _listening(host, port) as opened:
        named = f"[{host}]" if ":" in host else host
        sys.stderr.write(announce(f"http://{named}:{opened.getsockname()[1]}") + "\n")
        sys.stderr.flush()

        async def checked() -> HostChecks:
            return HostChecks(await app(), hosts, unchecked)

        asyncio.run(_serve(checked, opened, settings or {}))


@contextmanager
def serving(app: Callable[[], Awaitable[Any]], settings: Mapping[str, Any], end_seconds: float) -> Iterator[int]:
    """Serve the application in a thread of this process while the block runs, on a free port, which is yielded. Whoever
    connects before it is ready waits; if it ends, they are refused. It has `end_seconds` to end behind the block."""
    own_interpreter()
    servers, ended = list[_Server](), threading.Event()
    with _listening(LOOPBACK[0], 0) as listener:
        port = listener.getsockname()[1]

        async def run() -> None:
            with closing(listener):
                servers.append(_server(HostChecks(await app()), settings))
                servers[0].should_exit = ended.is_set()
                await servers[0].serve(sockets=[listener])

        def work() -> None:
            try:
                asyncio.run(run())
            except Exception as error:  # its trace would be written into the terminal of whoever runs the block
                logger.error("the server has ended: %s", type(error).__name__)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            ended.set()
            for server in servers:
                server.should_exit = True
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


def _server(app: Any, settings: Mapping[str, Any]) -> _Server:
    # Not httptools, which uvicorn would take if it is installed: of a request with `Upgrade: h2c`, as Java's HttpClient
    # sends it, it loses the body.
    known = {"http": "h11", "timeout_graceful_shutdown": SHUTDOWN_SECONDS, "log_config": None, "access_log": False}
    return _Server(uvicorn.Config(app, **{**known, **settings}))


async def _serve(
    app: Callable[[], Awaitable[Any]],
    listener: socket.socket,
    settings: Mapping[str, Any],
) -> None:
    server: _Server | None = None
    ended: list[int] = []

    def stop(number: int, _: object) -> None:
        """After the first signal the server ends with the running requests; at once after the second."""
        ended.append(number)
        if server is not None:
            server.should_exit, server.force_exit = True, len(ended) > 1

    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    server = _server(await app(), settings)
    server.should_exit = bool(ended)
    await server.serve(sockets=[listener])
