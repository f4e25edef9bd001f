"""Hooks for one run of a client: after a compaction its new window gets the hand-off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.files.regular_files import read_regular
from contextstash.hosts.clients import Machine, Scope, own_command
from contextstash.hosts.install.client_hooks import HOOKS
from contextstash.hosts.launch import Launch
from contextstash_storage.databases import text_of

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

NEEDED = ("PreCompact", "SessionStart", "SessionEnd")
"""The events that a hand-off needs. The hook after each tool call, which cuts outputs, is left to `install --hooks`."""

SETTINGS_OPTION = "--settings"
"""Claude Code's option for further settings of one process; its hooks are added to those of the user's files."""


def with_hand_offs(client: str, launch: Launch, machine: Machine, database: Location | None) -> Launch | None:
    """The process with our hooks, if they are not installed; None if there is no way to add them for one run: Codex
    and Gemini CLI read hooks from their files only, and a second --settings would replace the user's."""
    hooks = HOOKS.get(client)
    if hooks is None:
        return None
    scopes: tuple[Scope, ...] = ("user", "project")
    if any(not set(NEEDED) & set(hooks.missing(_settings(hooks.file(machine, scope)))) for scope in scopes):
        return launch
    program, *arguments = launch.command
    if client != "claude-code" or any(each.split("=")[0] == SETTINGS_OPTION for each in arguments):
        return None
    added: dict[str, Any] = {}
    # A server's address reaches the hooks by the environment: it may hold a password.
    named = ("--db", text_of(database.absolute())) if isinstance(database, Path) else ()
    hooks.add(added, own_command(), named)
    kept = {event: groups for event, groups in added["hooks"].items() if event in NEEDED}
    return Launch((program, SETTINGS_OPTION, json.dumps({"hooks": kept}), *arguments), launch.environment)


def _settings(path: Path) -> Any:
    try:
        return json.loads(read_regular(path))
    except (OSError, ValueError):
        return None
