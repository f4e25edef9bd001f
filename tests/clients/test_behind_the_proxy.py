"""Real clients started by `contextstash run`: they keep their windows, their provider, and their project.

Each runs if it is there. The provider is on loopback.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from contextstash.clients.client import ANTHROPIC
from tests.support.coding_provider import CodingProvider, coding_provider
from tests.support.command_line import CommandLine
from tests.support.real_clients import program

SECONDS = 240
"""A guess: a client starts in a few seconds, on a busy machine in a minute."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


def environment(home: Path) -> dict[str, str]:
    """A client's, with a home of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "OPENAI_"))}
    own = {"HOME": str(home), "CODEX_HOME": str(home / ".codex"), "IS_SANDBOX": "1"}
    own |= {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "ANTHROPIC_API_KEY": "none", "CODEX_API_KEY": "none"}
    return {**kept, **own}


def run(provider: CodingProvider, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A client through `contextstash run`."""
    command = [sys.executable, "-m", "contextstash", "run", "--db", str(home / "sessions.db")]
    return subprocess.run(
        [*command, "--upstream", provider.url, *arguments],
        env=environment(home),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("upstream", ["https://api.anthropic.com", "http://127.0.0.1:9"])
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-haiku-4-5"])
def test_claude_code_has_the_window_that_it_has_at_that_address_without_us(
    model: str, upstream: str, tmp_path: Path
) -> None:
    """No API is asked: /context answers without a request, at the address that was set."""
    client = program("claude")
    asked = [client, "-p", "/context", "--model", model]
    with coding_provider("true", 0) as provider:
        provider.url = upstream
        behind = run(provider, tmp_path, client, "--", *asked[1:])
    alone = subprocess.run(
        asked,
        env=environment(tmp_path) | ({} if upstream == ANTHROPIC else {"ANTHROPIC_BASE_URL": upstream}),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    windows = [re.search(r"Tokens:\*\* .+ / (\w+)", done.stdout) for done in (behind, alone)]
    assert windows[0]
    assert windows[1]
    assert windows[0][1] == windows[1][1]


def test_codex_stays_with_its_built_in_provider_and_gives_up_web_sockets_at_once(tmp_path: Path) -> None:
    client = program("codex")
    (tmp_path / ".codex").mkdir()
    with coding_provider("echo hello", 2) as provider:
        flags = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "gpt-5.4"]
        done = run(provider, tmp_path, client, "--", "exec", *flags, "Do the work.")
    assert done.returncode == 0, done.stderr[-2_000:]
    assert [asked.path for asked in provider.asked] == ["/v1/responses"] * 3
    assert {asked.headers["authorization"] for asked in provider.asked} == {"Bearer none"}
    assert not [path for method, path in provider.others if method == "GET" and path.endswith("responses")]
    assert "Reconnecting" not in done.stderr
    [rollout] = (tmp_path / ".codex" / "sessions").rglob("rollout-*.jsonl")
    assert json.loads(rollout.read_text().splitlines()[0])["payload"]["model_provider"] == "openai"
    [session] = CommandLine(tmp_path).json("sessions")["sessions"]
    assert session["project"] == str(tmp_path)
