"""Serving many clients over streamable HTTP, on this machine alone."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import uvicorn

from contextstash.mcp.lazy import OpenStash
from contextstash.mcp.server import ToolSet, build_server
from contextstash.mcp.signals import end_signals
from contextstash_storage.errors import BadInputError

LOOPBACK = ("127.0.0.1", "localhost", "::1")

LARGEST_BODY = 64 * 1024 * 1024
"""Bytes of one HTTP request: a batch of messages with images in it can be tens of megabytes."""

SHUTDOWN_SECONDS = 5
"""How long open requests may go on after a signal."""


def run_http(open_stash: OpenStash, tools: ToolSet, *, host: str, port: int, path: str) -> None:
    """Serve until a signal ends it. Raises BadInputError where that address cannot be served."""
    if host not in LOOPBACK:
        raise BadInputError(
            f"Serving on {host} would show every session to everyone who can reach it."
            f" Serve on {', '.join(LOOPBACK[:-1])} or {LOOPBACK[-1]}."
        )
    if not path.startswith("/"):
        raise BadInputError("The path of the endpoint begins with '/'.")
    with _listening(host, port) as listener:
        address = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"contextstash serves http://{address}:{listener.getsockname()[1]}{path}\n")
        sys.stderr.flush()
        anyio.run(_serve, open_stash, tools, host, path, listener)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if host == "::1" else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except (OSError, OverflowError) as error:
            raise BadInputError(f"Port {port} on {host} cannot be used ({error}). Choose another.") from error
        listener.listen(128)
        yield listener


class _Server(uvicorn.Server):
    """Leaves signals to us: uvicorn raises them again when it has ended, and the exit code would not be 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(open_stash: OpenStash, tools: ToolSet, host: str, path: str, listener: socket.socket) -> None:
    app = build_server(open_stash, tools).streamable_http_app(
        streamable_http_path=path, stateless_http=True, max_request_body_size=LARGEST_BODY, host=host
    )
    config = uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=SHUTDOWN_SECONDS)
    http = _Server(config)
    async with anyio.create_task_group() as group:
        group.start_soon(_stop_on_signal, http)
        await http.serve(sockets=[listener])
        group.cancel_scope.cancel()


async def _stop_on_signal(http: uvicorn.Server) -> None:
    async for _ in end_signals():
        http.should_exit = True
