"""Errors of usage, the imports at the start, and the commands that are operations: they print what the tool returns,
all of it as JSON, and its words for a person."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import pytest

from contextstash.cli.console import in_commands
from contextstash.operations import OPERATIONS
from contextstash.stash_opener import StashOpener
from tests.support.command_line import CommandLine, Orchard, failure_of


@pytest.mark.parametrize("arguments", [["comapct"], ["serve", "--tolls", "all"], ["delete"], ["config", "window"]])
def test_wrong_usage_is_one_line_that_names_the_help(contextstash: CommandLine, arguments: list[str]) -> None:
    done = contextstash.run(*arguments)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert line.endswith("--help")


def test_the_whole_command_line_imports_nothing_heavy_before_a_command_runs() -> None:
    heavy = ["rich", "pydantic", "mcp", "tiktoken", "genai_prices", "aiosqlite", "sqlcipher3", "platformdirs"]
    program = "import sys; from contextstash.cli.app import cli; list(cli.commands.values());"
    program += f"print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_file_that_is_no_database_or_is_not_there_is_an_error_and_is_not_created(contextstash: CommandLine) -> None:
    contextstash.database.write_bytes(b"this is not a database" * 100)
    assert "Traceback" not in failure_of(contextstash.run("sessions"))
    missing = contextstash.folder / "misspelt.db"
    assert f"There is no database {missing}" in failure_of(contextstash.run("sessions", "--db", missing))
    assert not missing.exists()


@pytest.mark.parametrize(
    ("options", "environment", "says"),
    [
        (["--set", "prun_at=0.5"], {}, "(in --set). Did you mean 'prune_at'?"),
        (["--preset", "token-budgte"], {}, "There is no preset 'token-budgte'. Did you mean 'token-budget'?"),
        ([], {"CONTEXTSTASH_PRUNEAT": "0.5"}, "Did you mean 'prune_at'?"),
        (["--set", "prune_at=1.5"], {}, "prune_at must be less than or equal to 1, not '1.5'"),
    ],
)
def test_a_misspelt_setting_or_a_wrong_value_is_named_with_what_is_right(
    contextstash: CommandLine, options: list[str], environment: dict[str, str], says: str
) -> None:
    assert says in failure_of(contextstash.run("sessions", *options, environment=environment))


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
