"""Serves an ASGI application over HTTP, on this machine only, until a signal stops it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import anyio.lowlevel
import uvicorn

from contextstash.base.own_interpreter import own_interpreter
from contextstash.base.signals import end_signals
from contextstash.web.host_names import LOOPBACK
from contextstash_storage.errors import BadInputError

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


Drain = Callable[[], Coroutine[Any, Any, None]]
"""What an application does after the first signal, while the running requests end."""


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
    `announce` turns the address into a line for standard error. `settings` are uvicorn's; `drain` runs
    after a signal. `public`: another host may be served, behind a proxy that does TLS. Raises BadInputError if the host
    is not this machine or the port cannot be used."""
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
        sys.stderr.write(announce(f"http://{named}:{listener.getsockname()[1]}") + "\n")
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
        async with anyio.create_task_group() as group:
            async for _ in end_signals():
                if self._drain is not None and not self.requested:
                    group.start_soon(self._drain)
                if self.http is not None:
                    self.http.should_exit, self.http.force_exit = True, self.requested
                self.requested = True
