"""A server as a process of its own: started with few variables, its lines read within a limit, ended in order.

The SDK's own transport decodes and parses each line on the event loop, whatever its length. This one is the same with
another reader; it starts and ends the process with the SDK's functions, which is all that is used of its private parts.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.client import stdio
from mcp.shared.message import SessionMessage

from contextstash.gateway.answers import Answers, UnanswerableError
from contextstash.gateway.config import StdioServer
from contextstash.gateway.lines import EndlessLineError, lines_of
from contextstash.mcp.envelopes import written

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
"""How long what was sent may take to reach the process before its input is closed: the SDK's own."""

GONE = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


def environment_of(server: StdioServer) -> dict[str, str]:
    """The variables that a server gets: those that the SDK holds to be safe, and those of its entry."""
    return {**stdio.get_default_environment(), **server.env}


@asynccontextmanager
async def process_streams(server: StdioServer, answers: Answers) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams to a process that is started here and ended on leaving. Raises OSError if its program cannot be
    started, ValueError if its command or environment holds a NUL."""
    command = await stdio._get_executable_command(server.command)
    process = await stdio._create_platform_compatible_process(
        command, list(server.args), environment_of(server), sys.stderr, server.cwd
    )
    # no await from here to the task group: cancelled in between, the process would be left behind
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    flushed = anyio.Event()

    async def read() -> None:
        async with received:
            with suppress(*GONE):
                try:
                    async for line in lines_of(process.stdout, answers.limit):
                        message = await answers.message(line)
                        if message is not None:
                            await received.send(message)
                except (EndlessLineError, UnanswerableError):
                    logger.warning("server '%s' is disconnected, as its line is too long", answers.server)
                    return
            await stdio._drain_stdout(process)  # else it could hang at its exit, on a full pipe

    async def write() -> None:
        assert process.stdin
        try:
            async for item in sent:
                answers.expect(item.message)
                await process.stdin.send(written(item.message) + b"\n")
        except GONE:
            await received.aclose()  # what was asked gets no answer: better that its callers know
        finally:
            flushed.set()

    async def end() -> None:
        incoming.close()
        outgoing.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await flushed.wait()
        await stdio._stop_server_process(process)
        for stream in (incoming, outgoing, received, sent):
            await stream.aclose()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield incoming, outgoing
        finally:
            with anyio.CancelScope(shield=True):
                await end()
            group.cancel_scope.cancel()
