"""The host that started a server is known from its parent processes, else from its environment."""

from __future__ import annotations

import os

import pytest

from contextstash.clients.follow import commands_above, starting_client

SERVER = ["uv", "tool", "uvx", "contextstash", "serve"]


@pytest.mark.parametrize(
    ("command", "host"),
    [
        (["claude"], "claude-code"),
        (["/usr/bin/node", "/usr/lib/node_modules/@anthropic-ai/claude-code/cli.js"], "claude-code"),
        (["/opt/codex/bin/codex", "exec"], "codex"),
        (["C:\\codex.exe".replace("C:\\", "/c/")], "codex"),
        (["node", "--no-warnings=DEP0040", "/usr/local/bin/gemini"], "gemini"),
        (["node", "/usr/lib/node_modules/@google/gemini-cli/dist/index.js"], "gemini"),
        (["/opt/.opencode/bin/opencode"], "opencode"),
        (["node", "/usr/local/bin/pi"], "pi"),
        (["bun", "/usr/lib/node_modules/@mariozechner/pi-coding-agent/dist/cli.js"], "pi"),
    ],
)
def test_a_host_is_known_by_its_program(command: list[str], host: str) -> None:
    assert starting_client({}, [SERVER, ["sh", "-c", "claude codex gemini"], command]) == host


@pytest.mark.parametrize(
    "command",
    [
        [],
        ["bash"],
        ["vim", "codex.md"],
        ["node", "/srv/pi/server.js"],
        ["node", "/srv/codex/node_modules/express/server.js"],
        ["/Applications/Claude.app/Contents/MacOS/Claude"],
        ["python3"],
    ],
)
def test_other_programs_are_no_hosts(command: list[str]) -> None:
    assert starting_client({}, [command]) is None


def test_the_nearest_host_counts_though_another_left_its_variables() -> None:
    environment = {"CLAUDE_PROJECT_DIR": "/srv/orchard", "CLAUDECODE": "1"}
    assert starting_client(environment, [["codex"], ["bash"], ["claude"]]) == "codex"


@pytest.mark.parametrize(
    ("name", "host"), [("CLAUDE_PROJECT_DIR", "claude-code"), ("OPENCODE", "opencode"), ("GEMINI_CLI", "gemini")]
)
def test_if_no_process_shows_the_host_the_environment_does(name: str, host: str) -> None:
    assert starting_client({name: "1"}, [["launchd"]]) == host


def test_the_parent_processes_are_found() -> None:
    commands = commands_above()
    assert commands
    assert all(isinstance(word, str) for command in commands for word in command)
    assert os.getppid() > 0
