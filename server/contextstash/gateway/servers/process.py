"""A server process: started with few environment variables, read line by line up to a limit, stopped cleanly.

The SDK's own transport decodes and parses each line on the event loop, whatever its length. This transport differs only
in its reader. It starts and stops the process with private functions of the SDK; no other private part is used.
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
from mcp.types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from contextstash.gateway.config import StdioServer
from contextstash.gateway.servers.answers import Answers, UnanswerableError
from contextstash.gateway.servers.lines import EndlessLineError, lines_of
from contextstash.mcp.wire.json_rpc import written

logger = logging.getLogger(__name__)

FLUSH_SECONDS = 0.5
"""How long sent messages may take to reach the process before its stdin is closed: the SDK's own value."""

MAX_UNANSWERED = 1_000
"""Requests of a server that may wait for their responses. Each is a task in memory, and a server that sends them
without reading the responses would fill it. One that asks more is disconnected."""

CLOSED_ERRORS = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)


def environment_of(server: StdioServer) -> dict[str, str]:
    """The environment of a server: the variables that the SDK considers safe, and those of its entry."""
    return {**stdio.get_default_environment(), **server.env}


@asynccontextmanager
async def process_streams(server: StdioServer, answers: Answers) -> AsyncIterator[tuple[Any, Any]]:
    """Start a process and yield its two message streams; the process is stopped on exit. Raises OSError if the program
    cannot be started, ValueError if the command or the environment contains a NUL."""
    command = await stdio._get_executable_command(server.command)
    process = await stdio._create_platform_compatible_process(
        command, list(server.args), environment_of(server), sys.stderr, server.cwd
    )
    # no await from here to the task group: if it were cancelled there, the process would not be stopped
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


class _TooManyRequestsError(Exception):
    """A server sends requests and does not read the responses."""


class _Unanswered:
    """The requests of a server that have no response yet."""

    def __init__(self) -> None:
        self._ids: set[int | str] = set()

    def received(self, message: Any) -> None:
        """Note a message of the server. Raises _TooManyRequestsError."""
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
            if len(self._ids) > MAX_UNANSWERED:
                raise _TooManyRequestsError
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            cancelled = (message.params or {}).get("requestId")
            if isinstance(cancelled, int | str):
                self._ids.discard(cancelled)

    def sent(self, message: Any) -> None:
        """Note a message that has reached the server."""
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._ids.discard(message.id)


class _Connection:
    """A running server process and the streams between it and its session."""

    def __init__(self, process: Any, answers: Answers) -> None:
        self._process = process
        self._answers = answers
        self._received, self.incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self.outgoing, self._sent = anyio.create_memory_object_stream[SessionMessage](0)
        self._flushed = anyio.Event()
        self._unanswered = _Unanswered()

    async def read(self) -> None:
        """Pass the process's messages to the session until the process ends."""
        async with self._received:
            with suppress(*CLOSED_ERRORS):
                try:
                    async for line in lines_of(self._process.stdout, self._answers.limit):
                        message = await self._answers.message(line)
                        if message is not None:
                            self._unanswered.received(getattr(message, "message", None))
                            await self._received.send(message)
                except (EndlessLineError, UnanswerableError):
                    logger.warning("server '%s' is disconnected, as its line is too long", self._answers.server)
                    return
                except _TooManyRequestsError:
                    logger.warning("server '%s' is disconnected, as it reads no responses", self._answers.server)
                    return
            await stdio._drain_stdout(self._process)  # otherwise it could block at its exit, on a full pipe

    async def write(self) -> None:
        """Pass the session's messages to the process until one of the two ends."""
        try:
            async for item in self._sent:
                self._answers.expect(item.message)
                await self._process.stdin.send(written(item.message) + b"\n")
                self._unanswered.sent(item.message)
        except CLOSED_ERRORS:
            await self._received.aclose()  # pending requests get no response: closing the stream tells their callers
        finally:
            self._flushed.set()

    async def end(self) -> None:
        """Stop the process after sent messages have reached it."""
        self.incoming.close()
        self.outgoing.close()
        with anyio.move_on_after(FLUSH_SECONDS):
            await self._flushed.wait()
        await stdio._stop_server_process(self._process)
        for stream in (self.incoming, self.outgoing, self._received, self._sent):
            await stream.aclose()
