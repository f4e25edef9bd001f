"""A session goes on in another real client: Claude Code's in Codex, and what came of it back in Claude Code.

Both run in a terminal, as `contextstash continue` starts them. Runs if both are on the PATH.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.clients.test_windows import RULE, SECONDS, WORK
from tests.support.command_line import CommandLine
from tests.support.real_clients import (
    Asked,
    CodingProvider,
    client_environment,
    coding_provider,
    ended,
    in_the_end,
    program,
)

pytestmark = [
    pytest.mark.timeout(3 * SECONDS),
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform == "win32", reason="needs a terminal of Unix"),
]

KEY = "sk-ant-api03-none-none-none-none"


def prepared_home(home: Path, provider: CodingProvider) -> dict[str, str]:
    """The environment of clients that have been used before: no first questions, the folder trusted."""
    trusted = {str(home): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}
    known = {"hasCompletedOnboarding": True, "theme": "dark", "numStartups": 9, "projects": trusted}
    key = {"customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []}}
    (home / ".claude.json").write_text(json.dumps({**known, **key}))
    (home / ".codex").mkdir()
    (home / ".codex" / "config.toml").write_text(
        f'openai_base_url = "{provider.url}/v1"\napproval_policy = "never"\n'
        f'sandbox_mode = "danger-full-access"\n[projects."{home}"]\ntrust_level = "trusted"\n'
    )
    (home / ".codex" / "auth.json").write_text(json.dumps({"OPENAI_API_KEY": "none"}))
    own = {"TERM": "xterm-256color", "ANTHROPIC_API_KEY": KEY, "ANTHROPIC_MODEL": "claude-sonnet-4-5"}
    return client_environment(home, provider.url, **own)


@contextmanager
def in_terminal(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Callable[[float], str]]:
    """A program in a terminal of its own; the function reads what it shows for so many seconds."""
    ours, its = pty.openpty()
    termios.tcsetwinsize(its, (40, 120))
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=its, stdout=its, stderr=its, start_new_session=True
    )
    os.close(its)

    def read(seconds: float) -> str:
        found, end = b"", time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and select.select([ours], [], [], left)[0]:
            try:
                found += os.read(ours, 65_536)
            except OSError:
                break
            if b"\x1b[6n" in found[-200:]:  # it asks where the cursor is
                os.write(ours, b"\x1b[1;1R")
        return found.decode("utf-8", "replace")

    try:
        yield read
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        subprocess.run(["pkill", "-f", str(folder)], check=False)  # Codex leaves a server behind, in its own folder
        os.close(ours)


def continued(client: str, home: Path, provider: CodingProvider, environment: dict[str, str], written: str) -> Asked:
    """The request of a client with which the newest session is continued. The client ends once its own transcripts,
    files of this pattern, hold that its turn is complete: on a busy machine that takes a while."""
    shown, found, known = "", None, set(home.rglob(written))
    command = [sys.executable, "-m", "contextstash", "continue", client]
    with in_terminal(command, home, environment) as read:
        end = time.monotonic() + SECONDS
        while time.monotonic() < end and not (found and any(map(is_complete, set(home.rglob(written)) - known))):
            shown += read(1.0)
            found = next((each for each in provider.asked if "This continues session" in each.text), None)
    assert found, shown[-3_000:]
    provider.asked.clear()
    return found


def is_complete(transcript: Path) -> bool:
    """Whether the last turn in a transcript of Codex or Claude Code has ended with words of the model."""
    records = [json.loads(line) for line in transcript.read_text("utf-8").splitlines() if line.endswith("}")]
    ends = [each.get("message", {}).get("stop_reason") or each.get("payload", {}).get("type") for each in records]
    return "end_turn" in ends or "task_complete" in ends


def test_a_session_of_claude_code_goes_on_in_codex_and_back(tmp_path: Path) -> None:
    claude = program("claude")
    program("codex")
    ours = CommandLine(tmp_path)
    with coding_provider("seq 1 300; echo planted-in-claude", 3) as provider:
        environment = prepared_home(tmp_path, provider)
        for client in ("claude-code", "codex"):
            assert ours.run("install", client, "--yes").returncode == 0
        (tmp_path / ".codex" / "hooks.json").unlink()  # Codex asks first whether to trust them
        ended([claude, "-p", WORK, "--dangerously-skip-permissions"], tmp_path, environment, SECONDS).check_returncode()
        assert in_the_end(lambda: bool(ours.json("sessions")["sessions"]))
        [first] = ours.json("sessions")["sessions"]

        provider.made.clear()
        provider.asked.clear()
        asked = continued("codex", tmp_path, provider, environment, ".codex/sessions/**/rollout-*.jsonl")
        assert asked.path.endswith("/responses")
        assert RULE in asked.text
        assert f"This continues session {first['session_id']}" in asked.text

        assert ours.run("import", tmp_path / ".codex" / "sessions").returncode == 0
        newest = ours.json("sessions")["sessions"][0]
        assert newest["agent"] == "codex"
        provider.made.clear()
        asked = continued("claude-code", tmp_path, provider, environment, ".claude/projects/*/*.jsonl")
        assert asked.path.split("?")[0].endswith("/messages")
        assert RULE in asked.text
        assert f"This continues session {newest['session_id']}" in asked.text
    assert ours.json("search", "planted-in-claude")["hits"]
