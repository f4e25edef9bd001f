"""Clients that take an MCP server, and no more: Claude Desktop, Cursor, VS Code, Goose.

Sources: their own documentation of their configuration files, read in November 2026.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.clients.client import Client, Entry, Machine, typed


def _goose_entry(command: Sequence[str]) -> dict[str, Any]:
    common = {"enabled": True, "envs": {}, "type": "stdio", "timeout": 300}
    return {"name": "contextstash", "cmd": command[0], "args": list(command[1:]), **common}


def _goose_file(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.configuration / "Block" / "goose" / "config" / "config.yaml"
    return machine.dot_config / "goose" / "config.yaml"


CLIENTS = (
    Client(
        "claude-desktop",
        entry=Entry(
            "json",
            "mcpServers",
            {"user": lambda at: at.configuration / "Claude" / "claude_desktop_config.json"},
        ),
    ),
    Client(
        "cursor",
        entry=Entry(
            "json",
            "mcpServers",
            {
                "user": lambda at: at.home / ".cursor" / "mcp.json",
                "project": lambda at: at.project / ".cursor" / "mcp.json",
            },
        ),
    ),
    Client(
        "vscode",
        entry=Entry(
            "json",
            "servers",
            {
                "user": lambda at: at.configuration / "Code" / "User" / "mcp.json",
                "project": lambda at: at.project / ".vscode" / "mcp.json",
            },
            typed,
        ),
    ),
    Client("goose", entry=Entry("yaml", "extensions", {"user": _goose_file}, _goose_entry)),
)
