"""Into a client's configuration and out of it again, to the byte."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from contextstash.clients.client import Machine, client
from tests.support.command_line import CommandLine, failure_of

NAMES = ("claude-desktop", "codex", "cursor", "vscode", "gemini", "opencode")

FILES = {
    "claude-code": ".mcp.json",
    "claude-desktop": "Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "cursor": ".cursor/mcp.json",
    "vscode": "Code/User/mcp.json",
    "gemini": ".gemini/settings.json",
    "opencode": "opencode/opencode.json",
}

JSON_BEFORE = """{
    "numStartups": 7,
    "mcpServers": {
        "git": {"command": "uvx", "args": ["mcp-server-git"]}
    },
    "ü": "ö"
}"""
TOML_BEFORE = """# my model
model = "gpt-5.2"   # the newest

[mcp_servers.git]
command = "uvx"
args = ["mcp-server-git"]
"""
BEFORE = {"codex": TOML_BEFORE}


def place(contextstash: CommandLine, client: str) -> Path:
    return contextstash.folder / FILES[client]


def entry(client: str, text: str) -> Any:
    """What stands for contextstash in a client's file."""
    if client == "codex":
        return tomllib.loads(text)["mcp_servers"]["contextstash"]
    data = json.loads(text)
    return data[{"vscode": "servers", "opencode": "mcp"}.get(client, "mcpServers")]["contextstash"]


def run(contextstash: CommandLine, *arguments: str) -> str:
    done = contextstash.run(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("client", NAMES)
@pytest.mark.parametrize("existed", [True, False])
def test_an_entry_starts_this_contextstash_and_leaves_the_former_bytes(
    contextstash: CommandLine, client: str, existed: bool
) -> None:
    path = place(contextstash, client)
    before = BEFORE.get(client, JSON_BEFORE).encode()
    if existed:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(before)
    run(contextstash, "install", client, "--yes")
    found = entry(client, path.read_text())
    command = found["command"] if client == "opencode" else [found["command"], *found["args"]]
    assert Path(command[0]).is_absolute()
    assert "serve" in command
    followed = command[command.index("--follow") + 1] if "--follow" in command else None
    assert followed == (client if client in ("codex", "gemini", "opencode") else None)
    assert ("git" in path.read_text()) == existed
    written = path.read_bytes()
    assert "installed in" in run(contextstash, "install", client, "--yes")
    assert path.read_bytes() == written
    run(contextstash, "uninstall", client, "--yes")
    assert (path.read_bytes() if path.exists() else None) == (before if existed else None)
    left = path.parent.iterdir() if path.parent.exists() else ()
    assert [found.name for found in left if "before-contextstash" in found.name] == []


PLUGINS = {"opencode": "opencode/plugins/contextstash.js", "pi": ".pi/agent/extensions/contextstash.js"}


@pytest.mark.parametrize("client", PLUGINS)
def test_a_plugin_names_this_contextstash_and_is_gone_afterwards(contextstash: CommandLine, client: str) -> None:
    path = contextstash.folder / PLUGINS[client]
    assert str(path) in run(contextstash, "install", client, "--dry-run")
    assert not path.exists()
    run(contextstash, "install", client, "--yes", "--db", "mine.db")
    lines = path.read_text().splitlines()
    [program] = [json.loads(line.partition("=")[2]) for line in lines if line.startswith("const PROGRAM = ")]
    [options] = [json.loads(line.partition("=")[2]) for line in lines if line.startswith("const OPTIONS = ")]
    assert Path(program[0]).is_absolute()
    assert options == ["--db", str(contextstash.folder / "mine.db")]
    assert "installed in" in run(contextstash, "install", client, "--yes", "--db", "mine.db")
    run(contextstash, "uninstall", client, "--yes")
    assert not path.parent.exists()


def test_a_plugin_that_the_user_changed_is_removed_and_another_of_its_name_stays(contextstash: CommandLine) -> None:
    path = contextstash.folder / PLUGINS["pi"]
    run(contextstash, "install", "pi", "--yes")
    path.write_text(path.read_text().replace("SECONDS = 10", "SECONDS = 20"))
    run(contextstash, "uninstall", "pi", "--yes")
    assert not path.exists()
    path.parent.mkdir(parents=True)
    path.write_text("// my own\n")
    assert "not installed in pi" in run(contextstash, "uninstall", "pi", "--yes")
    assert path.read_text() == "// my own\n"
    run(contextstash, "install", "pi", "--yes")
    run(contextstash, "uninstall", "pi", "--yes")
    assert path.read_text() == "// my own\n"


def test_a_plugin_is_never_written_into_a_project(contextstash: CommandLine) -> None:
    run(contextstash, "install", "opencode", "--yes", "--scope", "project")
    assert list(contextstash.folder.rglob("contextstash.js")) == []
    assert "starts no MCP servers" in failure_of(contextstash.run("install", "pi", "--yes", "--scope", "project"))


@pytest.mark.parametrize("client", ["codex", "cursor"])
def test_what_the_user_changed_since_stays(contextstash: CommandLine, client: str) -> None:
    path = place(contextstash, client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(BEFORE.get(client, JSON_BEFORE))
    run(contextstash, "install", client, "--yes")
    path.write_text(path.read_text().replace("mcp-server-git", "mcp-server-git2"))
    run(contextstash, "uninstall", client, "--yes")
    text = path.read_text()
    assert "contextstash" not in text
    assert "mcp-server-git2" in text
    assert ("# my" in text) == (client == "codex")
    assert ("# the newest" in text) == (client == "codex")


def test_hooks_are_added_beside_the_users_own_and_taken_out_again(contextstash: CommandLine) -> None:
    path = contextstash.folder / ".claude" / "settings.json"
    path.parent.mkdir()
    own = {"hooks": {"PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "fmt"}]}]}}
    path.write_text(json.dumps(own))
    run(contextstash, "install", "claude-code", "--scope", "project", "--yes")
    hooks = json.loads(path.read_text())["hooks"]
    assert set(hooks) == {"PostToolUse", "PreCompact", "SessionStart", "SessionEnd", "SubagentStop"}
    assert hooks["PostToolUse"][0] == own["hooks"]["PostToolUse"][0]
    assert "hook claude-code" in hooks["PostToolUse"][1]["hooks"][0]["command"]
    path.write_text(path.read_text().replace("fmt", "fmt2"))
    said = run(contextstash, "uninstall", "claude-code", "--scope", "project", "--yes")
    assert "without its hooks" in said
    assert said.splitlines()[-1].endswith(f": {contextstash.database.parent}")
    assert json.loads(path.read_text()) == json.loads(json.dumps(own).replace("fmt", "fmt2"))


@pytest.mark.parametrize("named", ["by an option", "by the environment"])
def test_the_database_named_at_the_installation_reaches_server_and_hooks(contextstash: CommandLine, named: str) -> None:
    database = contextstash.folder / "named here.db" if named == "by an option" else contextstash.database
    run(contextstash, "install", "claude-code", "--scope", "project", "--yes")
    run(
        contextstash,
        "install",
        "claude-code",
        "--scope",
        "project",
        "--yes",
        *(["--db", str(database)] if named == "by an option" else []),
    )
    served = entry("claude-code", place(contextstash, "claude-code").read_text())
    assert served["args"][-2:] == ["--db", str(database)]
    settings = json.loads((contextstash.folder / ".claude" / "settings.json").read_text())
    for event, [group] in settings["hooks"].items():
        commands = [shlex.split(hook["command"]) for hook in group["hooks"]]
        given = [["--part", f"{number}/3"] for number in (1, 2, 3)] if event == "SessionStart" else [[]]
        assert [command[command.index("hook") :] for command in commands] == [
            ["hook", "claude-code", *part, "--db", str(database)] for part in given
        ]
    hook = settings["hooks"]["PostToolUse"][0]["hooks"][0]
    output = {"tool_name": "Bash", "tool_response": {"stdout": "line\n" * 9_000, "stderr": ""}}
    event = json.dumps({"hook_event_name": "PostToolUse", "session_id": "one", **output})
    called = subprocess.run(shlex.split(hook["command"]), input=event, text=True, capture_output=True, check=True)
    assert "out_" in called.stdout
    assert database.exists()


def test_the_projects_own_file_is_written_if_that_scope_is_given(contextstash: CommandLine) -> None:
    run(contextstash, "install", "vscode", "--scope", "project", "--yes")
    assert entry("vscode", (contextstash.folder / ".vscode" / "mcp.json").read_text())["type"] == "stdio"
    run(contextstash, "uninstall", "vscode", "--scope", "project", "--yes")
    assert not (contextstash.folder / ".vscode").exists()


def test_folders_that_were_made_leave_and_no_others(contextstash: CommandLine) -> None:
    (contextstash.folder / ".gemini").mkdir()
    run(contextstash, "sessions")
    before = set(contextstash.folder.rglob("*"))
    for command in ("install", "uninstall"):
        for name in ("pi", "opencode", "gemini"):
            run(contextstash, command, name, "--yes")
    assert {each for each in contextstash.folder.rglob("*") if each.is_dir()} <= before
    assert (contextstash.folder / ".gemini").is_dir()


def test_the_difference_is_shown_and_nothing_written_unless_agreed(contextstash: CommandLine) -> None:
    summary = run(contextstash, "install", "cursor", "--dry-run")
    assert '"contextstash": {' not in summary
    assert "mcp.json would be created: 12 lines added" in summary
    assert "  the MCP server contextstash: " in summary
    assert '+    "contextstash": {' in run(contextstash, "install", "cursor", "--dry-run", "--diff")
    done = contextstash.run("install", "cursor")
    assert (done.returncode, "Nothing was written" in done.stderr, "pass --yes" in done.stderr) == (1, True, True)
    assert "mcp.json would be created" in done.stdout
    assert not place(contextstash, "cursor").exists()


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", "{ // mine\n}"),
        ("codex", "model = "),
        ("gemini", "[1]"),
        ("opencode", '{"mcp": 3}'),
    ],
)
def test_a_file_that_cannot_be_parsed_is_not_changed(contextstash: CommandLine, client: str, text: str) -> None:
    path = place(contextstash, client)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert "Nothing was written" in failure_of(contextstash.run("install", client, "--yes"))
    assert path.read_text() == text


@pytest.mark.skipif(os.name == "nt", reason="links and modes are another matter there")
def test_a_link_stays_one_and_permissions_stay(contextstash: CommandLine) -> None:
    real = contextstash.folder / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    path = contextstash.folder / ".mcp.json"
    path.symlink_to(real)
    run(contextstash, "install", "claude-code", "--scope", "project", "--yes")
    assert path.is_symlink()
    assert "contextstash" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    run(contextstash, "uninstall", "claude-code", "--scope", "project", "--yes")
    assert (path.is_symlink(), real.read_text()) == (True, "{}")


@pytest.mark.parametrize(("client", "file"), [("codex", ".codex/hooks.json"), ("gemini", ".gemini/settings.json")])
def test_hooks_of_other_clients_are_put_in_and_taken_out_to_the_byte(
    contextstash: CommandLine, client: str, file: str
) -> None:
    path = contextstash.folder / file
    path.parent.mkdir(parents=True)
    own = '{"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "greet"}]}]},   "other": 1}'
    path.write_text(own)
    run(contextstash, "install", client, "--yes")
    hooks = json.loads(path.read_text())["hooks"]
    called = [hook["command"] for groups in hooks.values() for group in groups for hook in group["hooks"]]
    assert called.count("greet") == 1
    # Codex bounds what one hook may add, so three give a part of a hand-off each.
    assert sum(f"hook {client} " in command for command in called) == {"codex": 8, "gemini": 5}[client]
    assert "already" in run(contextstash, "install", client, "--yes")
    run(contextstash, "uninstall", client, "--yes")
    assert path.read_text() == own


def test_codex_waits_at_most_3_seconds_for_the_hook_at_its_end(contextstash: CommandLine) -> None:
    run(contextstash, "install", "codex", "--yes")
    hooks = json.loads((contextstash.folder / ".codex" / "hooks.json").read_text())["hooks"]
    timeouts = {event: hook["timeout"] for event, [group] in hooks.items() for hook in group["hooks"]}
    assert timeouts.pop("SessionEnd") == 3
    assert set(timeouts.values()) == {30}
    assert "once you trust them" in contextstash.run("doctor").stdout


def test_a_scope_that_a_client_does_not_have_is_refused(contextstash: CommandLine) -> None:
    assert "scope" in failure_of(contextstash.run("install", "claude-desktop", "--scope", "project", "--yes"))


def test_uninstalling_what_is_not_installed_says_so(contextstash: CommandLine) -> None:
    assert "not installed" in run(contextstash, "uninstall", "gemini", "--yes")


def test_an_installation_with_hooks_is_summed_up_in_a_line_for_each_thing(contextstash: CommandLine) -> None:
    shown = run(contextstash, "install", "claude-code", "--scope", "project", "--dry-run").splitlines()
    assert len(shown) == 6, shown
    assert shown[3].startswith("  hooks for PostToolUse, PreCompact, SessionStart, SessionEnd, SubagentStop: ")
    assert "contextstash hook claude-code" in shown[3]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("claude-cod", "'claude-cod' is not one of 'claude-code', 'claude-desktop', 'codex', "),
        ("emacs", "See: contextstash install --help"),
    ],
)
def test_an_unknown_client_gets_the_names_of_all(contextstash: CommandLine, given: str, says: str) -> None:
    done = contextstash.run("install", given)
    assert done.returncode == 2
    assert says in done.stderr


def test_all_clients_on_the_machine_are_installed_at_once(contextstash: CommandLine) -> None:
    for name in (".codex", ".cursor", ".gemini"):
        (contextstash.folder / name).mkdir()
    environment = {"PATH": "/nowhere"}
    done = contextstash.run("install", "--yes", environment=environment)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.endswith(":")] == ["codex:", "gemini:", "cursor:"]
    assert (contextstash.folder / ".codex" / "hooks.json").exists()
    assert (contextstash.folder / ".cursor" / "mcp.json").exists()
    assert not (contextstash.folder / ".claude.json").exists()


def test_what_was_changed_between_two_installations_is_there_after_both_are_taken_back(
    contextstash: CommandLine,
) -> None:
    path = contextstash.folder / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text("model_auto_compact_token_limit = 90_000\n")
    run(contextstash, "install", "codex", "--window", "50k", "--yes")
    path.write_text(f'model = "gpt-5.2"\n{path.read_text()}')
    run(contextstash, "install", "codex", "--window", "60k", "--yes")
    assert "= 60000" in path.read_text()
    run(contextstash, "uninstall", "codex", "--yes")
    assert tomllib.loads(path.read_text()) == {"model": "gpt-5.2", "model_auto_compact_token_limit": 90_000}


def test_claude_code_is_found_by_its_folder_and_named_by_its_program(contextstash: CommandLine) -> None:
    (contextstash.folder / ".claude").mkdir()
    done = contextstash.run("install", "--dry-run", environment={"PATH": "/nowhere"})
    assert "claude-code:" in done.stdout.splitlines()
    assert "Installed. Restart claude-code" in run(contextstash, "install", "claude-code", "--yes")
    assert "already installed in claude-code" in run(contextstash, "install", "claude-code", "--yes")


def test_an_installation_has_the_hooks_and_says_so(contextstash: CommandLine) -> None:
    assert "Codex runs new hooks only once you trust them" in run(contextstash, "install", "codex", "--yes")
    assert "already installed in codex" in run(contextstash, "install", "codex", "--yes")


SETTINGS = '{"enabledPlugins": {"other@market": true}, "theme": "dark"}'
PLUGIN = "contextstash@contextstash"


@pytest.mark.parametrize("before", [SETTINGS, None])
def test_claude_code_loads_our_plugin_from_this_package_until_it_is_uninstalled(
    contextstash: CommandLine, before: str | None
) -> None:
    path = contextstash.folder / ".claude" / "settings.json"
    path.parent.mkdir()
    if before is not None:
        path.write_text(before)
    run(contextstash, "install", "claude-code", "--db", "stash.db", "--yes")
    settings = json.loads(path.read_text())
    folder = Path(settings["extraKnownMarketplaces"]["contextstash"]["source"]["path"])
    [listed] = json.loads((folder / ".claude-plugin" / "marketplace.json").read_text())["plugins"]
    assert os.access(folder / listed["source"] / "bin" / "contextstash", os.X_OK)
    assert settings["enabledPlugins"][PLUGIN] is True
    assert settings["env"]["CONTEXTSTASH_DB"] == str(contextstash.folder / "stash.db")
    run(contextstash, "uninstall", "claude-code", "--yes")
    assert (path.read_text() if path.exists() else None) == before


def test_what_claude_code_noted_of_our_plugin_leaves_with_it(contextstash: CommandLine) -> None:
    run(contextstash, "install", "claude-code", "--yes")
    folder = contextstash.folder / ".claude" / "plugins"
    folder.mkdir()
    (folder / "known_marketplaces.json").write_text('{"contextstash": {}, "market": {}}')
    (folder / "installed_plugins.json").write_text(json.dumps({"version": 2, "plugins": {PLUGIN: []}}))
    run(contextstash, "uninstall", "claude-code", "--yes")
    assert "contextstash" not in "".join(file.read_text() for file in folder.iterdir())
    assert json.loads((folder / "installed_plugins.json").read_text())["plugins"] == {}


@pytest.mark.skipif(os.name == "nt", reason="the program is a shell script")
@pytest.mark.parametrize(("version", "says"), [("2.1.330", "may load"), ("2.1.325", "too old for it: 2.1.326")])
def test_doctor_says_whether_the_mod_may_load(contextstash: CommandLine, version: str, says: str) -> None:
    program = contextstash.folder / "bin" / "claude"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version} (Claude Code)'\n")
    program.chmod(0o755)
    run(contextstash, "install", "claude-code", "--yes")
    machine = Machine(contextstash.folder, contextstash.folder, "linux", {"PATH": str(program.parent)})
    bundle = client("claude-code").bundle
    assert bundle is not None
    assert says in (bundle.off(machine) or "may load")
