"""A server's lines as messages: small ones are parsed here, large ones kept as bytes or parsed by a worker."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

from mcp.shared.message import SessionMessage
from mcp.types import (
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from contextstash.gateway.lines import END_BYTES, Overlong, answered_id, is_answer
from contextstash.gateway.worker import RefusedError, Workers
from contextstash.json_text import BadJsonError
from contextstash.mcp.json_rpc import found_id, read_answer

logger = logging.getLogger(__name__)

HELD_BYTES = 16 * 1024
"""Bytes from which the result of a tool is left to a worker process: a smaller one is within the limits of an output
unless they were lowered, and costs the event loop a few milliseconds."""

PARSED_HERE_BYTES = 256 * 1024
"""Bytes up to which any other message is parsed on the event loop: at worst 35 ms, and lists of tools are smaller."""

UNREADABLE = -32019
"""The code of the error that replaces an unusable answer, from the range that JSON-RPC leaves to servers."""

HELD = "contextstash/held"
"""The name in a result's `_meta` of the line that is held in its place. Only an object of ours there counts: a server
can write the name, but no such object."""

TOO_LARGE = (
    "The server '{server}' answered with {size:,} bytes, and at most {limit:,} are taken. Ask for less: a narrower"
    " query, fewer rows, a page or a part of a file. The limit is max_answer_bytes under the key 'contextstash' of the"
    " server's entry."
)


@dataclass(frozen=True, slots=True)
class Held:
    """The unparsed line of a tool's result."""

    line: bytes = field(repr=False)


def held_in(result: Any) -> Held | None:
    """The line that is held in the place of a result."""
    found = (result.meta or {}).get(HELD) if isinstance(result, CallToolResult) else None
    return found if isinstance(found, Held) else None


class UnanswerableError(Exception):
    """A line over the limit whose request is unknown: the connection must end, or its caller would wait for ever."""


class Answers:
    """Turns the lines of one connection into messages. `limit` is that of one line, in bytes."""

    def __init__(self, server: str, limit: int, workers: Workers) -> None:
        self.server = server
        self.limit = limit
        self._workers = workers
        self._asked: dict[int | str, str] = {}

    def expect(self, message: Any) -> None:
        """Record a request that was sent, or was cancelled."""
        if isinstance(message, JSONRPCRequest):
            self._asked[message.id] = message.method
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._asked.pop((message.params or {}).get("requestId", ""), None)

    async def message(self, line: bytes | Overlong) -> SessionMessage | Exception | None:
        """What the session is given for a line; None for an answer that nobody waits for. Raises UnanswerableError if
        somebody may wait for it for ever."""
        if isinstance(line, Overlong):
            return self._too_large(line)
        if len(line) <= HELD_BYTES:
            return self._parsed(line)
        number = answered_id(line[:END_BYTES], line[-END_BYTES:])
        method = None if number is None else self._asked.pop(number, "")
        if method == "":
            logger.debug("server '%s' answered what nobody waits for", self.server)
            return None
        if number is not None and method == "tools/call":
            result = {"content": [], "resultType": "complete", "_meta": {HELD: Held(line)}}
            return SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=number, result=result))
        if len(line) <= PARSED_HERE_BYTES:
            return self._parsed(line)
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_python(await self._workers.parsed(line)))
        except (RefusedError, ValueError) as error:
            return self._refused(number, str(error))

    def _parsed(self, line: bytes) -> SessionMessage | Exception:
        try:
            message = read_answer(line)
        except BadJsonError as error:
            return self._refused(found_id(line), str(error).rstrip("."))
        if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
            self._asked.pop(message.id, None)
        return SessionMessage(message)

    def _refused(self, number: int | str | None, reason: str) -> SessionMessage | Exception:
        """An error in the place of an answer that cannot be read, so that nobody waits for it for ever."""
        logger.warning("a message of the server '%s' cannot be read: %s", self.server, reason)
        if number is None:
            return ValueError(reason)
        text = f"The answer of the server '{self.server}' cannot be read: {reason}."
        return _error(number, text)

    def _too_large(self, line: Overlong) -> SessionMessage | Exception:
        number = answered_id(line.begin, line.end)
        text = TOO_LARGE.format(server=self.server, size=line.size, limit=self.limit)
        logger.warning("%s", text)
        if number is None and is_answer(line.begin):
            raise UnanswerableError(text)
        if number is None:
            return ValueError(text)
        self._asked.pop(number, None)
        return _error(number, text)


def _error(number: int | str, text: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=UNREADABLE, message=text)))
