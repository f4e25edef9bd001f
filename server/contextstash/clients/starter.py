"""The client that started this process: by the programs above it, or by the variables that it set."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from contextstash.clients.client import clients

MAX_ANCESTORS = 12
"""How many parent processes are examined: enough for launchers (uv, npx, sh) and a terminal between."""

_DESKTOP = re.compile(r"Claude\.app/|AnthropicClaude")
"""The paths of Claude Desktop, whose program has the same name as Claude Code's."""

_RUNTIMES = re.compile(r"(?:node|nodejs|bun|deno|python[\d.]*)")
_SUFFIX = re.compile(r"(?:\.(?:exe|js|mjs|cjs|cmd))+$")


def starting_client(environment: Mapping[str, str], commands: Iterable[Sequence[str]]) -> str | None:
    """The client's name, None if it is unknown. `commands` are those of the parent processes, the nearest first. Of the
    variables each client's first counts before all others, which what it starts inherits."""
    for command in commands:
        if (found := _client_of(command)) is not None:
            return found
    first, others = [], []
    for each in clients():
        first += [(name, each.name) for name in each.variables[:1]]
        others += [(name, each.name) for name in each.variables[1:]]
    return next((host for name, host in [*first, *others] if environment.get(name)), None)


def _client_of(command: Sequence[str]) -> str | None:
    """The client of a command: by the name of the program, or of the script that a runtime runs, or of its package."""
    if not command or _DESKTOP.search(command[0]):
        return None
    programs = {program: each.name for each in clients() for program in each.programs}
    own = _name(command[0])
    if own in programs or not _RUNTIMES.fullmatch(own):
        return programs.get(own)
    script = next((argument for argument in command[1:] if not argument.startswith("-")), "")
    if (found := programs.get(_name(script))) is not None:
        return found
    package = [_name(name) for name in Path(script.rpartition("node_modules")[2]).parts[1:3]]
    return next((programs[name] for name in package if "node_modules" in script and name in programs), None)


def _name(path: str) -> str:
    return _SUFFIX.sub("", Path(path).name.lower())


def commands_above() -> list[list[str]]:
    """The commands of the parent processes, the nearest first; none if the system does not show them."""
    found = []
    process = os.getppid()
    for _ in range(MAX_ANCESTORS):
        parent = _from_proc(process) if Path("/proc/self/stat").exists() else _from_ps(process)
        if parent is None:
            break
        process, command = parent
        found.append(command)
        if process <= 1:
            break
    return found


def _from_proc(process: int) -> tuple[int, list[str]] | None:
    """The parent and the command of a process, from /proc."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace")
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    parent = stat.rpartition(")")[2].split()[1:2]
    return int(parent[0]) if parent else 0, [word for word in command.split("\0") if word]


def _from_ps(process: int) -> tuple[int, list[str]] | None:
    try:
        done = subprocess.run(
            ["ps", "-o", "ppid=,command=", "-p", str(process)],
            capture_output=True,
            text=True,
            timeout=2,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    parent, _, command = done.stdout.strip().partition(" ")
    return (int(parent), command.split()) if parent.isdecimal() else None
