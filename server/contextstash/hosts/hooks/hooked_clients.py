"""The clients whose lifecycle hooks are handled, by the names that the command line uses."""

from __future__ import annotations

import os
from importlib import import_module

HOOKED = {"claude-code": "claude_code", "codex": "codex", "gemini": "gemini"}
"""The module of each client's hooks, imported only once that client calls: a hook must start fast."""


def part_of(text: str) -> tuple[int, int] | None:
    """The two numbers of a text such as `2/3`; None if it is not the number of a part."""
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and len(text) <= 5):
        return None
    return (int(number), int(of)) if 1 <= int(number) <= int(of) else None


def run_hook(client: str, database: str | None = None, part: tuple[int, int] = (1, 1)) -> int:
    """Handle one event of a client's hook, in this database or the default one; returns the exit code. `part` is the
    number of this hook among those that give a hand-off together, and how many these are."""
    if database is not None:
        os.environ["CONTEXTSTASH_DB"] = database
    from contextstash.hosts.hooks.dispatch import run

    return run(import_module(f"contextstash.hosts.hooks.{HOOKED[client]}").HOST, part=part)
