"""The commands that are operations print what the tool returns: all of it as JSON, and its words for a person."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from contextstash.cli.console import in_commands
from contextstash.operations import OPERATIONS
from contextstash.stash_opener import StashOpener
from tests.support.command_line import Orchard

COMMANDS: dict[str, tuple[str, dict[str, Any]]] = {
    "status {session}": ("context_status", {}),
    "prune {session} --keep-last 2 --dry-run": ("prune_tool_outputs", {"keep_last": 2, "dry_run": True}),
    "compact {session} --strategy extractive --dry-run": (
        "compact_session",
        {"strategy": "extractive", "dry_run": True},
    ),
    "restore {handle}": ("restore_outputs", {"handles": ["{handle}"]}),
    "pin {handle}": ("configure_session", {"pin": ["{handle}"]}),
    "delete {session} --yes": ("delete_session", {}),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_prints_what_its_tool_returns(orchard: Orchard, command: str) -> None:
    handle = orchard.json("show", "--message", "2")["handles"][0]
    name, arguments = json.loads(json.dumps(COMMANDS[command]).replace("{handle}", handle))
    words = command.format(handle=handle, session=orchard.session).split()
    copy = orchard.folder / "copy.db"  # the tool changes another one
    assert orchard.run("migrate-store", str(orchard.folder / "sessions.db"), str(copy)).returncode == 0
    operation = OPERATIONS[name]
    result = asyncio.run(_carried_out(StashOpener(copy), operation, {"session_id": orchard.session, **arguments}))
    if name not in ("configure_session", "delete_session"):
        said = orchard.run(*words).stdout
        assert in_commands(result.in_words()).splitlines()[0] in said
    assert orchard.json(*words) == result.model_dump(mode="json")


def test_a_message_names_options_but_leaves_settings_whose_names_hold_theirs() -> None:
    said = in_commands("Set keep_last, or the setting prune_keep_last; then call prune_tool_outputs.")
    assert said == "Set --keep-last, or the setting prune_keep_last; then call contextstash prune."


async def _carried_out(opener: StashOpener, operation: Any, arguments: dict[str, Any]) -> Any:
    async with await opener() as stash:
        defaults = {name: each.default for name, each in operation.arguments.items()}
        return await operation.run(stash, **{**defaults, **arguments})
