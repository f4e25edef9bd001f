"""Claude Code's hooks in its settings file: which events call us, put in and taken out."""

from __future__ import annotations

import shlex
from collections.abc import MutableMapping, Sequence
from pathlib import Path
from typing import Any

from contextstash.hosts.install.clients import Machine, Scope

EVENTS = ("PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop")

OURS = "hook claude-code"


def settings_file(machine: Machine, scope: Scope) -> Path:
    """Where Claude Code keeps hooks."""
    return (machine.home if scope == "user" else machine.project) / ".claude" / "settings.json"


def add_hooks(settings: MutableMapping[str, Any], command: Sequence[str]) -> None:
    """Have each event call us, once; other hooks stay."""
    called = shlex.join([*command, *OURS.split()])
    hooks = settings.setdefault("hooks", {})
    for event in EVENTS:
        groups = hooks.setdefault(event, [])
        if not any(_is_ours(hook) for group in groups for hook in group.get("hooks", ())):
            groups.append({"hooks": [{"type": "command", "command": called, "timeout": 30}]})


def remove_hooks(settings: MutableMapping[str, Any]) -> None:
    """Take us out of every event; what is empty then goes too."""
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return
    for event in list(hooks):
        groups = []
        for group in hooks[event]:
            rest = [hook for hook in group.get("hooks", ()) if not _is_ours(hook)]
            if rest or not group.get("hooks"):
                groups.append({**group, "hooks": rest})
        hooks[event] = groups
        if not groups:
            del hooks[event]
    if not hooks:
        del settings["hooks"]


def _is_ours(hook: Any) -> bool:
    return isinstance(hook, dict) and "contextstash" in str(hook.get("command")) and OURS in str(hook.get("command"))
