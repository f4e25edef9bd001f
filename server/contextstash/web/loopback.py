"""Serves an ASGI application over HTTP, on this machine only, until a signal stops it."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from contextstash.process.own_interpreter import own_interpreter
from contextstash.process.signals import end_signals
from contextstash.web.host_names import LOOPBACK
from contextstash_storage.errors import BadInputError

REQUEST_SECONDS = 30.0
"""How long a new connection may take until its first request has arrived with all its headers, and any further one from
its first byte on. A slow network takes some seconds. Idle connections between two requests have uvicorn's own
limit."""


class TimedConnection(H11Protocol):
    """uvicorn's protocol with a time limit for the line and headers of a request."""

    seconds = REQUEST_SECONDS
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._limit = self.loop.call_later(self.seconds, self._end_without_request)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._wait_no_longer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Begin to wait for the rest of a request, or end to."""
        super().data_received(data)
        if not self._waits_for_request():
            self._wait_no_longer()
        elif self._limit is None:
            self._limit = self.loop.call_later(self.seconds, self._end_without_request)

    def _waits_for_request(self) -> bool:
        """Whether no request is running: the last one, if any, has its response."""
        return self.cycle is None or self.cycle.response_complete

    def _wait_no_longer(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _end_without_request(self) -> None:
        self._limit = None
        if self._waits_for_request() and not self.transport.is_closing():
            self.transport.close()


SHUTDOWN_SECONDS = 5
"""Seconds that open requests may continue after a signal; then they are cut off."""


PROXY_SETTINGS: dict[str, Any] = {
    "server_header": False,
    "date_header": False,
    "ws": "none",
    "proxy_headers": False,
    "lifespan": "on",
    "timeout_keep_alive": 600,
    "timeout_graceful_shutdown": 1,
}
"""uvicorn's settings for an application that passes on others' responses: it adds no headers of its own, and leaves it
to the client when an idle connection ends (longer than clients keep theirs). After a signal a reply has one second
left: it may take minutes, and who ends the proxy waits for it."""


def read_ahead(size: int) -> None:
    """From now on, read so many bytes of each request in this process before the application has taken them."""
    from uvicorn.protocols.http import h11_impl

    h11_impl.HIGH_WATER_LIMIT = size  # type: ignore[attr-defined]


BACKLOG = 2_048
"""Connections that may wait to be accepted, as uvicorn's default: after another server's end all its clients come at
once."""

Drain = Callable[[], Awaitable[None]]
"""Waits until the running requests have ended."""


def serve(
    app: Callable[[], Awaitable[Any]],
    host: str,
    port: int,
    announce: Callable[[str], str],
    *,
    settings: Mapping[str, Any] | None = None,
    listener: socket.socket | None = None,
    drain: Drain | None = None,
    public: bool = False,
) -> None:
    """Serve the application that `app` returns, on a free port if `port` is 0, or on a `listener` that is open already.
    `announce` turns the address into a line for standard error. `settings` are uvicorn's. `drain` is awaited after a
    signal, while the server still listens. `public`: another host may be served, which TLS protects here or in a proxy
    in front. Raises BadInputError if the host is not this machine or the port cannot be used."""
    own_interpreter()
    if listener is not None:
        anyio.run(_serve, app, listener, settings or {}, drain)
        return
    if host not in LOOPBACK and not public:
        raise BadInputError(
            f"Serving on {host} would show every session to everyone who can reach it."
            f" Serve on {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}."
        )
    with _listening(host, port) as listener:
        named = f"[{host}]" if ":" in host else host
        scheme = "https" if settings and "ssl_certfile" in settings else "http"
        sys.stderr.write(announce(f"{scheme}://{named}:{listener.getsockname()[1]}") + "\n")
        sys.stderr.flush()
        anyio.run(_serve, app, listener, settings or {}, drain)


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
    """Does not handle signals: uvicorn would raise them again after its end, and the exit code would not be 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(
    app: Callable[[], Awaitable[Any]], listener: socket.socket, settings: Mapping[str, Any], drain: Drain | None
) -> None:
    async with anyio.create_task_group() as group:
        stop = _Stop(drain)
        group.start_soon(stop.on_signals)
        await anyio.lowlevel.checkpoint()  # from here on, a signal is received
        # Not httptools, which uvicorn would take if it is installed: of a request with `Upgrade: h2c`, as Java's
        # HttpClient sends it, it loses the body.
        config = uvicorn.Config(
            await app(),
            log_config=None,
            access_log=False,
            **{"http": "h11", "timeout_graceful_shutdown": SHUTDOWN_SECONDS, **settings},
        )
        stop.http = _Server(config)
        stop.http.should_exit = stop.requested
        await stop.http.serve(sockets=[listener])
        group.cancel_scope.cancel()


class _Stop:
    """Stops the server after the first signal, when the running requests have ended; at once after the second."""

    def __init__(self, drain: Drain | None) -> None:
        self.http: uvicorn.Server | None = None
        self.requested = False
        self._drain = drain

    async def on_signals(self) -> None:
        """Wait for signals, and stop."""
        draining = anyio.CancelScope()
        async with anyio.create_task_group() as group:
            async for _ in end_signals():
                if self.requested:
                    draining.cancel()
                self.requested = True
                group.start_soon(self._stop, draining)

    async def _stop(self, draining: anyio.CancelScope) -> None:
        if self._drain is not None and not draining.cancel_called:
            with draining:
                await self._drain()
        if self.http is not None:
            self.http.should_exit = True
