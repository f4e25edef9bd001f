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

from contextstash.gateway.servers.lines import END_BYTES, Overlong, answered_id, is_answer
from contextstash.gateway.servers.worker import RefusedError, Workers
from contextstash.json.json_text import BadJsonError
from contextstash.mcp.wire.json_rpc import found_id, read_answer

logger = logging.getLogger(__name__)

HELD_BYTES = 16 * 1024
"""Bytes above which a worker process parses the result of a tool. A smaller result is within the default output limits,
and parsing it blocks the event loop for a few milliseconds only."""

PARSED_HERE_BYTES = 256 * 1024
"""Bytes up to which any other message is parsed on the event loop. This takes 35 ms at worst; lists of tools are
smaller."""

UNREADABLE = -32019
"""The code of the error that replaces an unusable response, from the range that JSON-RPC reserves for servers (-32000
to -32099)."""

HELD = "contextstash/held"
"""The key in a result's `_meta` under which its unparsed line is stored. Only a `Held` object there counts: a server
can send the key, but not such an object."""

TOO_LARGE = (
    "The server '{server}' returned {size:,} bytes, and the maximum is {limit:,}. Request less: a narrower query, fewer"
    " rows, a page or a part of a file. The limit is max_answer_bytes under the key 'contextstash' of the server's"
    " entry."
)


@dataclass(frozen=True, slots=True)
class Held:
    """The unparsed line of a tool's result."""

    line: bytes = field(repr=False)


def held_in(result: Any) -> Held | None:
    """The unparsed line that stands for a result; None if the result was parsed."""
    found = (result.meta or {}).get(HELD) if isinstance(result, CallToolResult) else None
    return found if isinstance(found, Held) else None


class UnanswerableError(Exception):
    """A line over the limit whose request is unknown: the connection must end, or the caller would wait forever."""


class Answers:
    """Turns the lines of one connection into messages. `limit` is the maximum length of one line, in bytes."""

    def __init__(self, server: str, limit: int, workers: Workers) -> None:
        self.server = server
        self.limit = limit
        self._workers = workers
        self._pending: dict[int | str, str] = {}

    def expect(self, message: Any) -> None:
        """Record that a request was sent or cancelled."""
        if isinstance(message, JSONRPCRequest):
            self._pending[message.id] = message.method
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._pending.pop((message.params or {}).get("requestId", ""), None)

    async def message(self, line: bytes | Overlong) -> SessionMessage | Exception | None:
        """The message for the session; None if the line answers no pending request. Raises UnanswerableError if a
        caller might wait forever for the line's content."""
        if isinstance(line, Overlong):
            return self._too_large(line)
        if len(line) <= HELD_BYTES:
            return self._parsed(line)
        number = answered_id(line[:END_BYTES], line[-END_BYTES:])
        method = None if number is None else self._pending.pop(number, "")
        if method == "":
            logger.debug("server '%s' sent a response to no pending request", self.server)
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
            self._pending.pop(message.id, None)
        return SessionMessage(message)

    def _refused(self, number: int | str | None, reason: str) -> SessionMessage | Exception:
        """An error in the place of a response that cannot be read, so that its caller does not wait forever."""
        logger.warning("a message of the server '%s' cannot be read: %s", self.server, reason)
        if number is None:
            return ValueError(reason)
        text = f"The response of the server '{self.server}' cannot be read: {reason}."
        return _error(number, text)

    def _too_large(self, line: Overlong) -> SessionMessage | Exception:
        number = answered_id(line.begin, line.end)
        text = TOO_LARGE.format(server=self.server, size=line.size, limit=self.limit)
        logger.warning("%s", text)
        if number is None and is_answer(line.begin):
            raise UnanswerableError(text)
        if number is None:
            return ValueError(text)
        self._pending.pop(number, None)
        return _error(number, text)


def _error(number: int | str, text: str) -> SessionMessage:
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=UNREADABLE, message=text)))
