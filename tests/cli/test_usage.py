"""Errors of usage, and the imports at the start of the command line."""

from __future__ import annotations

import subprocess
import sys

import pytest

from contextstash.cli.app import SECTIONS, cli
from tests.support.command_line import CommandLine, failure_of


def test_the_version_is_printed(contextstash: CommandLine) -> None:
    done = contextstash.run("--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("contextstash 0.")


@pytest.mark.parametrize("arguments", [["comapct"], ["serve", "--tolls", "all"], ["delete"]])
def test_wrong_usage_is_one_line_that_names_the_help(contextstash: CommandLine, arguments: list[str]) -> None:
    done = contextstash.run(*arguments)
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith("Error: ")
    assert line.endswith("--help")


def test_a_misspelt_setting_is_named_with_its_place_and_the_nearest_one(contextstash: CommandLine) -> None:
    message = failure_of(contextstash.run("sessions", "--set", "prun_at=0.5"))
    assert "(in --set). Did you mean 'prune_at'?" in message
    done = contextstash.run("sessions", "--preset", "token-budgte")
    assert "There is no preset 'token-budgte'. Did you mean 'token-budget'?" in failure_of(done)
    done = contextstash.run("sessions", environment={"CONTEXTSTASH_PRUNEAT": "0.5"})
    assert "Did you mean 'prune_at'?" in failure_of(done)
    file = contextstash.folder / "contextstash" / "contextstash.toml"  # the user's: a project's own is only ignored
    file.parent.mkdir()
    file.write_text("compcat_at = 0.8\n")
    message = failure_of(contextstash.run("sessions"))
    assert str(file) in message
    assert "Did you mean 'compact_at'?" in message


def test_a_file_that_is_not_a_database_is_an_error_in_one_line(contextstash: CommandLine) -> None:
    contextstash.database.write_bytes(b"this is not a database" * 100)
    assert "Traceback" not in failure_of(contextstash.run("sessions"))


def test_the_whole_command_line_imports_nothing_heavy_before_a_command_runs() -> None:
    heavy = ["rich", "pydantic", "mcp", "tiktoken", "genai_prices", "aiosqlite", "platformdirs"]
    program = "import sys; from contextstash.cli.app import cli; list(cli.commands.values());"
    program += f"print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_database_that_is_named_and_not_there_is_an_error_and_is_not_created(contextstash: CommandLine) -> None:
    missing = contextstash.folder / "misspelt.db"
    assert f"There is no database {missing}" in failure_of(contextstash.run("sessions", "--db", missing))
    assert not missing.exists()


def test_the_help_lists_every_command_in_a_section_and_a_line_of_80_columns(contextstash: CommandLine) -> None:
    lines = contextstash.run("--help", environment={"COLUMNS": "80"}).stdout.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  ") and len(line.split()) > 1}
    assert {name for name, command in cli.commands.items() if not command.hidden} <= listed
    assert {f"{section}:" for section in SECTIONS} <= set(lines)
    assert not any(line.endswith("...") or len(line) > 80 for line in lines[1:])
    assert {name for lines in SECTIONS.values() for name in lines} <= set(cli.commands)


def test_a_wrong_value_of_a_setting_is_refused_in_plain_words(contextstash: CommandLine) -> None:
    for arguments in (("config", "set", "window=abc"), ("sessions", "--set", "window=abc")):
        assert "window must be a whole number, not 'abc'" in failure_of(contextstash.run(*arguments))
    assert "prune_at must be less than or equal to 1, not '1.5'" in failure_of(
        contextstash.run("sessions", "--set", "prune_at=1.5")
    )


def test_an_install_where_no_client_is_lists_the_clients_in_a_sentence(contextstash: CommandLine) -> None:
    [line] = contextstash.run("install").stderr.splitlines()
    assert "Choose from: claude-code, " in line
    assert line.endswith("opencode, pi. See: contextstash install --help")
