"""The clients whose lifecycle hooks are answered, by the names that the command line knows them by."""

from __future__ import annotations

from importlib import import_module

HOOKED = {"claude-code": "claude_code", "codex": "codex", "gemini": "gemini"}
"""The modules that know a client's hooks."""


def answer_hook(client: str) -> int:
    """Answer a hook of a client; returns the exit code."""
    from contextstash.hosts.hooks.dispatch import run

    return run(import_module(f"contextstash.hosts.hooks.{HOOKED[client]}").HOST)
