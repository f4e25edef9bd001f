"""Serving one client over stdin and stdout."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable

import anyio
from mcp.server import MCPServer, NotificationOptions, Server

from contextstash.mcp.lazy_stash import OpenStash
from contextstash.mcp.server import ToolSet, build_server
from contextstash.mcp.wire.stdio_streams import stdio_streams
from contextstash.process.own_interpreter import own_interpreter
from contextstash.process.signals import end_signals

logger = logging.getLogger(__name__)


def run_stdio(open_stash: OpenStash, tools: ToolSet, *, followed: bool = False) -> None:
    """Serve until stdin is closed or a signal ends it. `followed` as in build_server."""
    own_interpreter()
    anyio.run(_serve, open_stash, tools, followed)


async def _serve(open_stash: OpenStash, tools: ToolSet, followed: bool) -> None:
    stopped = anyio.Event()
    await run_until_signal(
        protocol_server(build_server(open_stash, tools, on_stopped=stopped.set, followed=followed)), stopped
    )


async def run_until_signal(
    server: Server[None],
    stopped: anyio.Event,
    changes: NotificationOptions | None = None,
    on_end: Callable[[], None] = lambda: None,
) -> None:
    """Run a server on stdin and stdout. `stopped` is set when it has closed what it uses; `on_end` is called then."""
    serving = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(_exit_on_signal, serving, stopped, on_end)
        with serving:
            try:
                async with stdio_streams() as (read, write):
                    await server.run(read, write, server.create_initialization_options(changes))
            except* BrokenPipeError:
                logger.warning("the client disconnected without closing stdin")
        on_end()
        group.cancel_scope.cancel()


def protocol_server(server: MCPServer[None]) -> Server[None]:
    """The SDK's low-level server, which runs on any pair of streams. The SDK has no public access to it."""
    below: Server[None] = server._lowlevel_server
    return below


async def _exit_on_signal(serving: anyio.CancelScope, stopped: anyio.Event, on_end: Callable[[], None]) -> None:
    """Exits the process once the store is closed: a pending read of stdin cannot be cancelled."""
    async for _ in end_signals():
        serving.cancel()
        await stopped.wait()
        on_end()
        sys.stderr.flush()
        os._exit(0)
