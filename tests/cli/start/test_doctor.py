"""`contextstash doctor`: the problems of an installation, and the advice on each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from contextstash.cli.doctor_command import _hooks
from contextstash.clients.client import Machine, client, hooks_of
from contextstash.clients.install import add_hooks
from tests.support.command_line import CommandLine

pytestmark = pytest.mark.processes


def findings(contextstash: CommandLine) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code, and the findings by the name of the check."""
    done = contextstash.run("doctor", "--json")
    return done.returncode, {finding["what"]: finding for finding in json.loads(done.stdout)}


def test_a_new_machine_has_no_problems_and_the_next_steps_are_named(contextstash: CommandLine) -> None:
    code, found = findings(contextstash)
    assert code == 0
    assert found["round trip over stdio"]["state"] == "ok"
    assert found["clients"]["advice"] == "contextstash install CLIENT"
    assert "No problems found." in contextstash.run("doctor").stdout


def test_an_installed_client_whose_command_is_gone_is_found(contextstash: CommandLine) -> None:
    contextstash.run("install", "cursor", "--yes")
    assert findings(contextstash)[1]["cursor (user)"]["state"] == "ok"
    path = contextstash.folder / ".cursor" / "mcp.json"
    data = json.loads(path.read_text())
    data["mcpServers"]["contextstash"]["command"] = "/nowhere/contextstash"
    path.write_text(json.dumps(data))
    code, found = findings(contextstash)
    assert code == 1
    assert found["cursor (user)"]["advice"] == "contextstash install cursor"


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("sessions.db", b"no database at all" * 200, "no SQLite database"),
        ("contextstash/contextstash.toml", b"prune_att = 1", "Did you mean 'prune_at'"),
        ("contextstash/agents/quick.yaml", b"window: [", "not valid YAML"),
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


def test_an_installed_client_without_hooks_and_one_with_some_are_told_so(tmp_path: Path) -> None:
    machine = Machine(tmp_path, tmp_path / "project", "linux", {})
    [none] = _hooks(client("claude-code"), "user", machine)
    assert (none.state, none.advice) == ("note", "contextstash install claude-code")
    assert "not installed" in none.says
    settings: dict[str, Any] = {}
    add_hooks(client("claude-code"), settings, ["contextstash"])
    path = hooks_of(client("claude-code")).file(machine, "user")
    path.parent.mkdir()
    path.write_text(json.dumps(settings))
    [all_of_them] = _hooks(client("claude-code"), "user", machine)
    assert (all_of_them.state, all_of_them.advice) == ("ok", "")
    del settings["hooks"]["PreCompact"]
    path.write_text(json.dumps(settings))
    [some] = _hooks(client("claude-code"), "user", machine)
    assert (some.state, some.says) == ("note", "missing for PreCompact")
    assert list(_hooks(client("cursor"), "user", machine)) == []


def test_our_plugin_in_claude_code_counts_as_installed_and_is_not_installed_twice(contextstash: CommandLine) -> None:
    """`claude plugin install contextstash@contextstash` writes no more than this into the user's settings."""
    settings = contextstash.folder / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"enabledPlugins": {"contextstash@contextstash": True}}))
    _, found = findings(contextstash)
    assert "its server and hooks are there" in found["claude-code (plugin)"]["says"]
    assert "clients" not in found
    refused = contextstash.run("install", "claude-code", "--scope", "project", "--yes")
    assert refused.returncode == 1
    assert "Our plugin is in this client already" in refused.stderr
    assert not (contextstash.folder / ".mcp.json").exists()
