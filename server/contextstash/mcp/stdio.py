"""Serving one client over stdin and stdout: the SDK's transport, with an answer to each line that it cannot read."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from mcp.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR, ErrorData, JSONRPCError, JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from contextstash.base.process import configure_logs, own_interpreter
from contextstash.mcp.answers import with_whole_characters
from contextstash.mcp.server import ToolSet, build_server
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import ContextstashError

logger = logging.getLogger(__name__)

UNREADABLE = "The line is not a JSON-RPC message. Send one JSON object with 'jsonrpc', 'id' and 'method' on each line."


def serve_stdio(opener: StashOpener, tools: ToolSet) -> None:
    """Serve one client over stdin and stdout; returns when stdin is closed. SIGTERM and SIGINT end the process with
    exit code 0 and the store closed."""
    configure_logs()
    own_interpreter()
    # The SDK has no public access to its low-level server, which runs on any pair of streams.
    server = build_server(opener, tools, followed=opener.follow is not None)._lowlevel_server
    anyio.run(run_until_signal, server)


async def run_until_signal(server: Server[None], *, tools_change: bool = False) -> None:
    """Run a server on stdin and stdout. With `tools_change` clients are told that its list of tools may change."""
    serving = anyio.CancelScope()
    options = server.create_initialization_options(NotificationOptions(tools_changed=tools_change))
    if sys.platform != "win32":  # there Python's KeyboardInterrupt ends the server
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(each, serving.cancel)
    with serving:
        try:
            async with _streams() as (read, write):
                try:
                    await server.run(read, write, options)
                finally:
                    if serving.cancel_called:  # by a signal: a pending read of stdin cannot be cancelled
                        sys.stderr.flush()
                        os._exit(0)
        except* BrokenPipeError:
            logger.warning("the client disconnected without closing stdin")


def repaired(error: Exception) -> JSONRPCMessage | None:
    """The message of a line that the SDK could not parse; None if it is no JSON-RPC message at all."""
    if not isinstance(error, ValidationError):
        return None
    problem = error.errors(include_url=False)[0]
    if problem["type"] != "json_invalid" or not isinstance(problem["input"], str):
        return None
    line = problem["input"].encode("utf-8", "replace")
    try:
        return jsonrpc_message_adapter.validate_json(with_whole_characters(line), by_name=False)
    except ValueError:
        return None


async def round_trip(command: Sequence[str], seconds: float) -> tuple[int, int]:
    """Start a server as a client does. Returns how many tools it lists, and how many tokens it counts in a message.
    Raises ContextstashError if it does not answer within `seconds`, or not as it should."""
    from mcp import Client, StdioServerParameters

    message = {"role": "user", "content": "Is everything well?"}
    try:
        with anyio.fail_after(seconds):
            async with Client(StdioServerParameters(command=command[0], args=list(command[1:]))) as client:
                tools = (await client.list_tools()).tools
                result: Any = await client.call_tool("estimate_context", {"messages": [message]})
                return len(tools), int(result.structured_content["tokens"])
    except Exception as error:
        raise ContextstashError("The server did not answer as it should.") from error


@asynccontextmanager
async def _streams() -> AsyncIterator[tuple[Any, Any]]:
    """The SDK's streams. It drops a line that it cannot parse, for whose answer the client would wait for ever."""
    passed, received = anyio.create_memory_object_stream[Any](0)

    async def pass_on(read: Any, write: Any) -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):  # the session ended before stdin
            async with passed:
                async for message in read:
                    if not isinstance(message, Exception):
                        await passed.send(message)
                    elif (found := repaired(message)) is not None:
                        await passed.send(SessionMessage(found))
                    else:
                        logger.warning("a line from the client was refused: it is no JSON-RPC message")
                        await write.send(SessionMessage(_UNREADABLE))

    async with stdio_server() as (read, write), anyio.create_task_group() as group:
        group.start_soon(pass_on, read, write)
        yield received, write


_UNREADABLE = JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=PARSE_ERROR, message=UNREADABLE))
