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
from contextstash.mcp.json_rpc import written

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
    connection = _Connection(process, answers)
    async with anyio.create_task_group() as group:
        group.start_soon(connection.read)
        group.start_soon(connection.write)
        try:
            yield connection.incoming, connection.outgoing
        finally:
            with anyio.CancelScope(shield=True):
                await connection.end()
            group.cancel_scope.cancel()


class _Connection:
    """A running server process between two pairs of streams: its side and its session's."""

    def __init__(self, process: Any, answers: Answers) -> None:
        self._process = process
        self._answers = answers
        self._received, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._sent = anyio.create_memory_object_stream[SessionMessage](0)
        self._flushed = anyio.Event()

    async def read(self) -> None:
        """Pass on what the process writes, until it ends."""
        async with self._received:
            with suppress(*GONE):
                try:
                    async for line in lines_of(self._process.stdout, self._answers.limit):
                        message = await self._answers.message(line)
                        if message is not None:
                            await self._received.send(message)
                except (EndlessLineError, UnanswerableError):
                    logger.warning("server '%s' is disconnected, as its line is too long", self._answers.server)
                    return
            await stdio._drain_stdout(self._process)  # else it could hang at its exit, on a full pipe

    async def write(self) -> None:
        """Pass on what the session sends, until one of the two ends."""
        try:
            async for item in self._sent:
                self._answers.expect(item.message)
                await self._process.stdin.send(written(item.message) + b"\n")
        except GONE:
            await self._received.aclose()  # what was asked gets no answer: better that its callers know
        finally:
            self._flushed.set()

    async def end(self) -> None:
        """End the process in order, after what was sent has reached it."""
        self.incoming.close()
        self.outgoing.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await self._flushed.wait()
        await stdio._stop_server_process(self._process)
        for stream in (self.incoming, self.outgoing, self._received, self._sent):
            await stream.aclose()
