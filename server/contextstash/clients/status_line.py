"""Claude Code's status line: its window, what contextstash did for it, and the money so far, in one line.

Claude Code runs the command after each reply, and passes a JSON object on standard input; every field may be absent.
Source: code.claude.com/docs/en/statusline, read in November 2026. As little as possible is imported: the command runs
often, and a line that comes late is not shown.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.clients.claude_code import RESERVE, WINDOW_VARIABLE

if TYPE_CHECKING:
    from contextstash_storage.sqlite.glance import Glance

MAX_INPUT_BYTES = 1_000_000
"""Of standard input: Claude Code's object has about 2,000."""


def line_of(event: Mapping[str, Any], environment: Mapping[str, str], found: Glance | None) -> str:
    """The status line for what Claude Code passed, and what the database has of the session."""
    parts = [_window(_mapping(event, "context_window"), environment), _given_back(found), _cost(event)]
    return " · ".join(part for part in parts if part) or "contextstash"


def _window(window: Mapping[str, Any], environment: Mapping[str, str]) -> str:
    size, used = _number(window, "context_window_size"), _used(window)
    limit = environment.get(WINDOW_VARIABLE, "")
    effective = min(size, int(limit)) if limit.isdecimal() and size else size
    if used is None:
        return ""
    share = f" {100 * used / size:.0f} %" if size else ""
    compacts = f", compacts at {_short(effective - RESERVE)}" if effective > RESERVE else ""
    return f"{_short(used)}{f' of {_short(size)}' if size else ''}{share}{compacts}"


def _used(window: Mapping[str, Any]) -> float | None:
    usage = _mapping(window, "current_usage")
    if usage:
        names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        return sum(_number(usage, name) for name in names)
    percent = window.get("used_percentage")
    return _number(window, "context_window_size") * percent / 100 if isinstance(percent, int | float) else None


def _given_back(found: Glance | None) -> str:
    if found is None:
        return ""
    parts = (
        (found.handoffs, f"{found.handoffs} hand-off{'s' * (found.handoffs != 1)}"),
        (found.outputs, f"{found.outputs} output{'s' * (found.outputs != 1)} archived"),
        (found.pruned, f"{_short(found.pruned)} pruned"),
    )
    return ", ".join(text for number, text in parts if number)


def _cost(event: Mapping[str, Any]) -> str:
    dollars = _mapping(event, "cost").get("total_cost_usd")
    return f"${dollars:.2f}" if isinstance(dollars, int | float) else ""


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _number(value: Mapping[str, Any], name: str) -> float:
    found = value.get(name)
    return found if isinstance(found, int | float) else 0


def _short(tokens: float) -> str:
    return f"{tokens / 1000:.0f}k" if tokens >= 1_000 else f"{tokens:.0f}"


def run(database: str | None = None) -> int:
    """Read Claude Code's object from standard input and print the line. It never fails: a client shows no error."""
    event: Any = None
    with suppress(OSError, ValueError, RecursionError):
        event = json.loads(sys.stdin.buffer.read(MAX_INPUT_BYTES))
    event = event if isinstance(event, dict) else {}
    session = event.get("session_id")
    found = _glance(session, database) if isinstance(session, str) else None
    with suppress(OSError, ValueError):
        sys.stdout.write(f"{line_of(event, os.environ, found)}\n")
    return 0


def _glance(session_id: str, database: str | None) -> Glance | None:
    if database is not None:
        os.environ["CONTEXTSTASH_DB"] = database
    from contextstash.configuration.encryption_key import database_key
    from contextstash.configuration.locations import default_database
    from contextstash_storage.sqlite.glance import glance

    place = default_database()
    return glance(place, session_id, f"{session_id}.outputs", database_key) if isinstance(place, Path) else None
