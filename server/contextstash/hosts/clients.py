"""The clients: where each keeps its configuration, and the form of an MCP server's entry in it.

Sources: the clients' own documentation of their configuration files (Claude Code and Desktop, Codex, Cursor, VS Code,
Gemini CLI, Goose, OpenCode), read in November 2026.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from contextstash.hosts.configuration_files import Kind
from contextstash.hosts.publication import uv_command

Scope = Literal["user", "project"]


def _following(client: str) -> tuple[str, str]:
    return ("--follow", client)


@dataclass(frozen=True)
class Machine:
    """The machine: the user's home, the project, the platform, and the environment."""

    home: Path
    project: Path
    platform: str
    environment: Mapping[str, str]

    @classmethod
    def this(cls) -> Machine:
        """The machine that this process runs on."""
        return cls(Path.home(), Path.cwd(), sys.platform, os.environ)

    @property
    def configuration(self) -> Path:
        """The folder in which desktop programs keep their settings."""
        if self.platform == "win32":
            return Path(self.environment.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return self.dot_config

    @property
    def dot_config(self) -> Path:
        return Path(self.environment.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True)
class Client:
    """A client. `files` are its configuration files by scope, `key` is the key of the servers in them, `entry` makes a
    server's entry from its command; `serve` are further arguments of `contextstash serve` there."""

    name: str
    kind: Kind
    key: str
    files: Mapping[Scope, Callable[[Machine], Path]]
    entry: Callable[[Sequence[str]], dict[str, Any]]
    serve: tuple[str, ...] = ()


def below(*names: str) -> Callable[[Machine, Scope], Path]:
    """A file below the user's home or the project's folder, by the scope."""
    return lambda machine, scope: (machine.home if scope == "user" else machine.project).joinpath(*names)


def _in_both(*names: str) -> Mapping[Scope, Callable[[Machine], Path]]:
    file = below(*names)
    return {"user": lambda at: file(at, "user"), "project": lambda at: file(at, "project")}


def _plain(command: Sequence[str]) -> dict[str, Any]:
    return {"command": command[0], "args": list(command[1:])}


def _typed(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "stdio", **_plain(command)}


def _goose(command: Sequence[str]) -> dict[str, Any]:
    return {
        "name": "contextstash",
        "cmd": command[0],
        "args": list(command[1:]),
        "enabled": True,
        "envs": {},
        "type": "stdio",
        "timeout": 300,
    }


def _opencode(command: Sequence[str]) -> dict[str, Any]:
    return {"type": "local", "command": list(command), "enabled": True}


def _goose_file(machine: Machine) -> Path:
    if machine.platform == "win32":
        return machine.configuration / "Block" / "goose" / "config" / "config.yaml"
    return machine.dot_config / "goose" / "config.yaml"


def codex_home(machine: Machine) -> Path:
    """The folder in which Codex keeps the user's files."""
    return Path(machine.environment.get("CODEX_HOME") or machine.home / ".codex")


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client(
            "claude-code",
            "json",
            "mcpServers",
            {"user": lambda at: at.home / ".claude.json", "project": lambda at: at.project / ".mcp.json"},
            _typed,
            _following("claude-code"),
        ),
        Client(
            "claude-desktop",
            "json",
            "mcpServers",
            {"user": lambda at: at.configuration / "Claude" / "claude_desktop_config.json"},
            _plain,
        ),
        Client(
            "codex",
            "toml",
            "mcp_servers",
            {
                "user": lambda at: codex_home(at) / "config.toml",
                "project": lambda at: at.project / ".codex" / "config.toml",
            },
            _plain,
            _following("codex"),
        ),
        Client(
            "cursor",
            "json",
            "mcpServers",
            _in_both(".cursor", "mcp.json"),
            _plain,
        ),
        Client(
            "vscode",
            "json",
            "servers",
            {
                "user": lambda at: at.configuration / "Code" / "User" / "mcp.json",
                "project": lambda at: at.project / ".vscode" / "mcp.json",
            },
            _typed,
        ),
        Client(
            "gemini",
            "json",
            "mcpServers",
            _in_both(".gemini", "settings.json"),
            _plain,
            _following("gemini"),
        ),
        Client("goose", "yaml", "extensions", {"user": _goose_file}, _goose),
        Client(
            "opencode",
            "json",
            "mcp",
            {
                "user": lambda at: at.dot_config / "opencode" / "opencode.json",
                "project": lambda at: at.project / "opencode.json",
            },
            _opencode,
            _following("opencode"),
        ),
    )
}


def own_command(executable: str = sys.executable) -> list[str]:
    """The command that starts this installation of contextstash: `uvx` if it lies in uv's cache, which may be emptied;
    else the script next to its interpreter, by absolute path, because clients have another PATH; else the module.
    Never the name on the package index as long as that name is not ours."""
    parts = Path(executable).parts
    in_the_cache = "uv" in parts and any(part.startswith("archive-v") for part in parts)
    if in_the_cache and (command := uv_command()) is not None:
        return command
    for name in ("contextstash", "contextstash.exe"):
        script = Path(executable).with_name(name)
        if script.is_file():
            return [str(script)]
    # -P: clients start it in the project's folder, from which `-m` alone would import first
    return [executable, "-P", "-m", "contextstash"]
