"""The real OpenCode and pi with our plugins: the window is compacted by us, and if we fail they go on by themselves.

Runs if `opencode`, or `pi`, is on the PATH.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.real_clients import (
    SECONDS,
    Asked,
    CodingProvider,
    client_environment,
    coding_provider,
    recorded,
    run_real,
)

RULE = "Never round the fines."
PLANTED = "FINE_PER_DAY = 35"
STEPS = 12
LATER = "FINE_PER_DAY = 40"
COMMAND = "seq 1 1500 | sed 's/^/loan number /'"
CALLS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "opencode": (
        ("read", {"filePath": "fines.py"}),
        ("edit", {"filePath": "fines.py", "oldString": PLANTED, "newString": LATER}),
        ("contextstash_search_history", {"query": "round fines"}),
    ),
    "pi": (
        ("read", {"path": "fines.py"}),
        ("edit", {"path": "fines.py", "edits": [{"oldText": PLANTED, "newText": LATER}]}),
        ("mcp__contextstash__search_history", {"query": "round fines"}),
    ),
}
"""A file is read and edited first, by the client's own tools, and the session searched by ours."""
BROKEN = {
    "missing": None,
    "killed": "kill -9 $$",
    "odd": "echo '{}'",
    "hanging": "exec sleep 100",
}
"""What stands in place of our program."""

MODEL = {"contextWindow": 100_000, "maxTokens": 4_000}

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


@pytest.fixture(params=["opencode", "pi"])
def client(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return name


def environment(folder: Path) -> dict[str, str]:
    own = {"PWD": str(folder / "project"), "PI_OFFLINE": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
    return client_environment(folder, **own)


def installed(folder: Path, client: str) -> Path:
    """The plugin, as our own command installs it."""
    database = str(folder / "sessions.db")
    command = [sys.executable, "-m", "contextstash", "install", client, "--yes", "--db", database]
    subprocess.run(command, env=environment(folder), cwd=folder, check=True, capture_output=True)
    [path] = folder.rglob("contextstash.js")
    return path


def put_in_place(plugin: Path, program: str | None) -> None:
    """Let the plugin start another program than ours."""
    other = plugin.parents[1] / "other"
    if program is not None:
        other.write_text(f"#!/bin/sh\n{program}\n")
        other.chmod(0o755)
    lines = plugin.read_text().splitlines(keepends=True)
    [place] = [number for number, line in enumerate(lines) if line.startswith("const PROGRAM = ")]
    lines[place] = f"const PROGRAM = {json.dumps([str(other)])}\n"
    plugin.write_text("".join(lines))


def run_client(folder: Path, client: str, provider: CodingProvider, program: str | None = "ours") -> list[Asked]:
    """A session with more outputs than its window takes; returns the requests that are none for a summary."""
    project = folder / "project"
    project.mkdir()
    (project / "fines.py").write_text(PLANTED + "\n")
    provider.first_calls = CALLS[client]
    plugin = installed(folder, client)
    if program != "ours":
        put_in_place(plugin, program)
    else:  # a busy machine is not what is tested
        plugin.write_text(plugin.read_text().replace("SECONDS = 10 ", "SECONDS = 100 "))
    prompt = f"Count. {RULE}"
    if client == "pi":
        model: dict[str, Any] = {"id": "scripted", **MODEL}
        given: dict[str, Any] = {
            "baseUrl": provider.url,
            "api": "anthropic-messages",
            "apiKey": "none",
            "models": [model],
        }
        (folder / ".pi" / "agent" / "models.json").write_text(json.dumps({"providers": {"loopback": given}}))
        command = ["pi", "--provider", "loopback", "--model", "scripted", "-p", prompt]
    else:
        model = {"name": "scripted", "limit": {"context": MODEL["contextWindow"], "output": MODEL["maxTokens"]}}
        given = {
            "npm": "@ai-sdk/anthropic",
            "options": {"baseURL": f"{provider.url}/v1", "apiKey": "none"},
            "models": {"scripted": {**model, "tool_call": True}},
        }
        path = folder / ".config" / "opencode" / "opencode.json"
        settings = json.loads(path.read_text())
        settings |= {"provider": {"loopback": given}, "permission": {"bash": "allow", "edit": "allow"}}
        path.write_text(json.dumps(settings))
        command = ["opencode", "run", "--model", "loopback/scripted", prompt]
    done = run_real(command, folder, environment(folder))
    assert "All done." in done.stdout, done.stderr[-2_000:]
    return provider.turns()


def test_a_compaction_asks_no_model_and_keeps_rules_and_files_and_else_the_window_only_grows(
    client: str, tmp_path: Path
) -> None:
    with coding_provider(COMMAND, STEPS, bytes_per_token=2) as provider:
        turns = run_client(tmp_path, client, provider)
        assert not any(each.compacts for each in provider.asked)
    compacted = [after for before, after in pairwise(turns) if after.tokens < before.tokens / 1.3]
    assert compacted, [each.tokens for each in turns]
    for request in compacted:
        assert RULE in request.text
        assert LATER in request.text
        assert "[contextstash: hand-off of session" in request.text
    if "search_history" in str(turns[0].body["tools"]):  # pi waits for a server ten seconds, on a busy machine too
        assert any(RULE in str(output) for asked in turns for output in asked.outputs)
    events, keys = asyncio.run(recorded(tmp_path))
    assert events.count("compaction") == len(compacted)
    assert len(keys) == len(set(keys))
    sent = [[plain(each) for each in asked.body["messages"]] for asked in turns]
    assert sum(after[: len(before)] != before for before, after in pairwise(sent)) == len(compacted)


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_without_our_program_the_client_goes_on_by_itself(client: str, tmp_path: Path, program: str | None) -> None:
    with coding_provider(COMMAND, STEPS, bytes_per_token=2) as provider:
        run_client(tmp_path, client, provider, program)
        assert any(each.compacts for each in provider.asked)


def plain(message: dict[str, object]) -> str:
    """A message without the marks of the cache, which move."""
    content = message["content"]
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}]
    bare = [{name: value for name, value in block.items() if name != "cache_control"} for block in blocks]
    return json.dumps([message["role"], bare])
