"""Serves an ASGI application over HTTP, on this machine only, until a signal stops it."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import anyio
import uvicorn

from contextstash.signals import end_signals
from contextstash_storage.errors import BadInputError

HOSTS = ("127.0.0.1", "localhost", "::1")

SHUTDOWN_SECONDS = 5
"""Seconds that open requests may continue after a signal. A guess."""


PROXY_SETTINGS: dict[str, Any] = {
    "server_header": False,
    "date_header": False,
    "ws": "none",
    "proxy_headers": False,
    "lifespan": "on",
    "timeout_keep_alive": 600,
}
"""uvicorn's settings for an application that passes on others' responses: it adds no headers of its own, and leaves it
to the client when an idle connection ends (the number is a guess: longer than clients keep theirs)."""


def serve(
    app: Callable[[], Awaitable[Any]],
    host: str,
    port: int,
    announce: Callable[[str], str],
    *,
    settings: Mapping[str, Any] | None = None,
    listener: socket.socket | None = None,
) -> None:
    """Serve the application that `app` returns, on a free port if `port` is 0, or on a `listener` that is open already.
    `announce` turns the address into a line for standard error. `settings` are uvicorn's. Raises BadInputError if the
    host is not this machine or the port cannot be used."""
    if listener is not None:
        anyio.run(_serve, app, listener, settings or {})
        return
    if host not in HOSTS:
        raise BadInputError(
            f"Serving on {host} would show every session to everyone who can reach it."
            f" Serve on {', '.join(HOSTS[:-1])} or {HOSTS[-1]}."
        )
    with _listening(host, port) as listener:
        named = f"[{host}]" if ":" in host else host
        sys.stderr.write(announce(f"http://{named}:{listener.getsockname()[1]}") + "\n")
        sys.stderr.flush()
        anyio.run(_serve, app, listener, settings or {})


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInputError(
                f"Port {port} on {host} cannot be used ({error}). Choose another, or 0 for any free one."
            ) from error
        listener.listen(128)
        yield listener


class _Server(uvicorn.Server):
    """Does not handle signals: uvicorn would raise them again after its end, and the exit code would not be 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(app: Callable[[], Awaitable[Any]], listener: socket.socket, settings: Mapping[str, Any]) -> None:
    made = await app()
    config = uvicorn.Config(
        made, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS, **settings
    )
    http = _Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, http)
        await http.serve(sockets=[listener])
        group.cancel_scope.cancel()


async def _stop_on_signal(http: uvicorn.Server) -> None:
    async for _ in end_signals():
        http.should_exit = True
