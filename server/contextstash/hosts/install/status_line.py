"""Claude Code's `statusLine` setting: how ours is added and removed, and whose it is."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any

KEY = "statusLine"


def add(settings: MutableMapping[str, Any], command: Sequence[str], options: Sequence[str] = ()) -> None:
    """Make ours the status line."""
    settings[KEY] = {"type": "command", "command": shlex.join([*command, "statusline", *options])}


def remove(settings: MutableMapping[str, Any]) -> None:
    """Remove the status line if it is ours."""
    if is_ours(settings.get(KEY)):
        del settings[KEY]


def is_ours(line: Any) -> bool:
    """Whether a status line is ours."""
    command = str(line.get("command")) if isinstance(line, Mapping) else ""
    return "contextstash" in command and "statusline" in command


def other_line(settings: Any) -> str | None:
    """The command of a status line that is not ours; None if there is none."""
    line = settings.get(KEY) if isinstance(settings, Mapping) else None
    if not line or is_ours(line):
        return None
    return str(line.get("command") if isinstance(line, Mapping) else line)
