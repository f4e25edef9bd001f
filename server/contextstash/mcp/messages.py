"""Messages that the SDK cannot parse: those with half of a surrogate pair are repaired, all others get an error.

A program that cuts a text in the middle of an emoji sends such a half, an escape such as D83D alone. JSON can contain
it, UTF-8 cannot: over MCP it becomes U+FFFD.
"""

from __future__ import annotations

from mcp.types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from contextstash.base.json_text import BadJsonError, strict_value
from contextstash.mcp.sendable import sendable

BYTE_ORDER_MARK = "\ufeff"
"""Some programs write it before UTF-8; the SDK's reader refuses it."""


def repaired(error: Exception) -> JSONRPCMessage | None:
    """The message of a line that the SDK could not parse; None if it is no JSON-RPC message at all."""
    if not isinstance(error, ValidationError):
        return None
    problem = error.errors(include_url=False)[0]
    line = problem["input"]
    if problem["type"] != "json_invalid" or not isinstance(line, str):
        return None
    try:
        value = sendable(strict_value(line.removeprefix(BYTE_ORDER_MARK).encode("utf-8", "surrogatepass")))
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except (BadJsonError, ValueError):
        return None
