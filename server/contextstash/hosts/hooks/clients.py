"""The clients whose lifecycle hooks are handled, by the names that the command line uses."""

from __future__ import annotations

import os
from importlib import import_module

HOOKED = {"claude-code": "claude_code", "codex": "codex", "gemini": "gemini"}
"""The module of each client's hooks, imported only once that client calls: a hook must start fast."""


def run_hook(client: str, database: str | None = None) -> int:
    """Handle one event of a client's hook, in this database or the default one; returns the exit code."""
    if database is not None:
        os.environ["CONTEXTSTASH_DB"] = database
    from contextstash.hosts.hooks.dispatch import run

    return run(import_module(f"contextstash.hosts.hooks.{HOOKED[client]}").HOST)
