"""Configuration files of a project, written by whoever wrote the repository: links, FIFOs, invalid contents."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from contextstash.cli.doctor_command import _clients
from contextstash.clients.client import Machine, client
from contextstash.clients.install import apply_install, plan_install, plan_uninstall
from contextstash.clients.launch import is_configured, launched_client
from contextstash_storage.errors import BadInputError

CLAUDE = client("claude-code")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A home and a project beside it."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("CONTEXTSTASH_DB", str(tmp_path / "home" / "sessions.db"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project")
    return Machine(tmp_path / "home", tmp_path / "project", "linux", {})


def install(machine: Machine) -> None:
    for change in plan_install(CLAUDE, "project", machine, ["contextstash"]):
        apply_install(change)


@pytest.mark.parametrize("kind", ["fifo", "endless"])
def test_a_file_that_is_no_regular_file_is_refused_at_once(machine: Machine, kind: str) -> None:
    path = machine.project / ".mcp.json"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(BadInputError, match=r"regular file|link out of the project"):
        plan_install(CLAUDE, "project", machine, ["contextstash"])
    with pytest.raises(BadInputError, match=r"regular file|link out of the project"):
        plan_uninstall(CLAUDE, "project", machine)
    assert not is_configured(launched_client("claude"), machine)


@pytest.mark.parametrize("linked", [".mcp.json", ".claude", ".claude/settings.json"])
def test_a_link_out_of_the_project_does_not_direct_an_edit_to_a_file_of_the_user(machine: Machine, linked: str) -> None:
    target = machine.home / "mine"
    if linked == ".claude":
        target.mkdir()
    else:
        target.write_text('{"mine": 1}')
    link = machine.project / linked
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    with pytest.raises(BadInputError, match="link out of the project"):
        install(machine)
    assert target.is_dir() or target.read_text() == '{"mine": 1}'


def test_a_link_in_the_place_of_the_backup_is_replaced_and_its_target_kept(machine: Machine) -> None:
    target = machine.home / "settings.json"
    target.write_text("mine")
    (machine.project / ".mcp.json").write_text('{"hooks": "of the attacker"}')
    (machine.project / ".mcp.json.before-contextstash").symlink_to(target)
    install(machine)
    assert target.read_text() == "mine"
    assert "contextstash" in json.loads((machine.project / ".mcp.json").read_text())["mcpServers"]


def test_half_of_a_surrogate_pair_in_a_file_is_kept(machine: Machine) -> None:
    path = machine.project / ".mcp.json"
    path.write_text('{"a": "\\ud83d"}')
    install(machine)
    assert json.loads(path.read_text())["a"] == "\ud83d"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe{", "cannot be read"),
        (b'{"mcpServers": {"contextstash": 5}}', "does not exist: None"),
        (b'{"mcpServers": {"contextstash": {"command": "\\u001b[2Jok"}}}', "does not exist:  [2Jok"),
    ],
)
def test_doctor_names_an_invalid_entry_without_its_control_characters(
    machine: Machine, content: bytes, says: str
) -> None:
    (machine.project / ".mcp.json").write_bytes(content)
    [finding] = [each for each in _clients() if each.what == "claude-code (project)"]
    assert (finding.state, says in finding.says) == ("wrong", True), finding
