"""Calls that a client relays: one tool of its own carries the name of an MCP server, its tool and its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping

RELAYS = frozenset({"use_mcp_tool"})
"""Cline's and Roo Code's tool for all MCP servers: {"server_name": …, "tool_name": …, "arguments": an object, or its
JSON}."""


def relayed(tool: str, arguments: object) -> tuple[str, object]:
    """The tool that a call is for, as `server/tool`, with its own arguments; unchanged if no client relays it."""
    if tool not in RELAYS:
        return tool, arguments
    given = _object(arguments)
    server, name = given.get("server_name"), given.get("tool_name")
    if not (isinstance(server, str) and isinstance(name, str) and server and name):
        return tool, arguments
    return f"{server}/{name}", given.get("arguments") or {}


def _object(arguments: object) -> Mapping[str, object]:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}
