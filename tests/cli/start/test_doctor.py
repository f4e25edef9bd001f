"""`contextstash doctor`: the problems of an installation, and the advice on each."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.command_line import CommandLine

pytestmark = pytest.mark.processes


def findings(contextstash: CommandLine) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by the name of the check."""
    done = contextstash.run("doctor", "--json")
    return done.returncode, {finding["what"]: finding for finding in json.loads(done.stdout)}


def test_a_new_machine_has_no_problems_and_the_next_steps_are_named(contextstash: CommandLine) -> None:
    code, found = findings(contextstash)
    assert code == 0
    assert found["round trip"]["state"] == "ok"
    assert found["clients"]["advice"] == "contextstash install CLIENT"
    assert "No problems found." in contextstash.run("doctor").stdout


def test_an_installed_client_whose_command_is_gone_is_found(contextstash: CommandLine) -> None:
    files = {"cursor": ".cursor/mcp.json", "pi (plugin)": ".pi/agent/extensions/contextstash.js"}
    for what in files:
        contextstash.run("install", what.split()[0], "--yes")
    found = findings(contextstash)[1]
    assert {found[what]["state"] for what in files} == {"ok"}
    program = found["cursor"]["says"].removeprefix("starts ")
    for file in files.values():
        path = contextstash.folder / file
        path.write_text(path.read_text().replace(program, "/nowhere/\\u001bcontextstash"))
    code, found = findings(contextstash)
    assert code == 1
    for what in files:
        assert found[what]["advice"] == f"contextstash install {what.split()[0]}"
        assert "\x1b" not in found[what]["says"]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("sessions.db", b"no database at all" * 200, "no SQLite database"),
        ("contextstash/contextstash.toml", b"prune_att = 1", "Did you mean 'prune_at'"),
        ("contextstash/contextstash.toml", b"agents = 1", "'agents' must hold tables"),
        (".claude.json", b"{", "not plain JSON"),
    ],
)
def test_a_damaged_file_is_named(contextstash: CommandLine, name: str, content: bytes, says: str) -> None:
    path = contextstash.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    code, found = findings(contextstash)
    assert code == 1
    assert any(says in finding["says"] for finding in found.values() if finding["state"] == "wrong")


def test_a_database_that_others_may_read_is_found(contextstash: CommandLine) -> None:
    contextstash.run("sessions")
    contextstash.database.chmod(0o644)
    code, found = findings(contextstash)
    assert (code, found["permissions"]["state"]) == (1, "wrong")
    assert found["permissions"]["advice"].startswith("chmod 600")


def test_an_installed_client_without_a_hook_is_told_so(contextstash: CommandLine) -> None:
    contextstash.run("install", "gemini", "--yes")
    assert "gemini hooks" not in findings(contextstash)[1]
    path = contextstash.folder / ".gemini" / "settings.json"
    settings = json.loads(path.read_text())
    del settings["hooks"]["PreCompress"]
    path.write_text(json.dumps(settings))
    found = findings(contextstash)[1]["gemini hooks"]
    assert (found["says"], found["advice"]) == ("missing for PreCompress", "contextstash install gemini")


def test_our_plugin_in_claude_code_counts_as_installed(contextstash: CommandLine) -> None:
    """`claude plugin install contextstash@contextstash` writes no more than this into the user's settings."""
    settings = contextstash.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"enabledPlugins": {"contextstash@contextstash": True}}))
    _, found = findings(contextstash)
    assert "its server, hooks and mod are there" in found["claude-code (plugin)"]["says"]
    assert "clients" not in found
