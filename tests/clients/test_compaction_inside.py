"""The real Claude Code with our plugin: its compaction is answered by us, and if we fail it compacts itself.

Runs if `claude` is on the PATH, in a version that loads mods (2.1.287).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from contextstash.clients.client import PLUGINS
from contextstash_storage.sqlite import open_sqlite
from tests.support.coding_provider import Asked, CodingProvider, coding_provider

SECONDS = 240
"""A guess: a client starts in a few seconds, on a busy machine in a minute."""

RULE = "Never round the fines."
COMMAND = "seq 1 2000 | sed 's/^/loan number /'"
BROKEN = {
    "missing": "exec /no/such/program",
    "killed": "kill -9 $$",
    "odd": 'case "$1" in window) echo "{}";; esac',
}
"""What stands in place of our program."""

pytestmark = [pytest.mark.timeout(2 * SECONDS), pytest.mark.processes]


def plugin(folder: Path, program: str) -> Path:
    """A copy of the plugin that starts this program."""
    copy = folder / "plugin"
    shutil.copytree(PLUGINS / "claude_code", copy)
    launcher = copy / "bin" / "contextstash"
    launcher.write_text(f"#!/bin/sh\n{program}\n")
    return copy


def run_claude(folder: Path, provider: CodingProvider, program: str) -> list[Asked]:
    """A session with more outputs than its window takes; returns the main agent's requests."""
    claude = shutil.which("claude") or pytest.skip("claude is not installed")
    version = subprocess.run([claude, "--version"], capture_output=True, text=True, check=True).stdout.split()[0]
    if tuple(map(int, version.split("."))) < (2, 1, 287):
        pytest.skip(f"claude {version} loads no mods")
    project = folder / "project"
    project.mkdir()
    done = subprocess.run(
        [claude, "-p", "--plugin-dir", plugin(folder, program), "--allowedTools", "Bash", "--", f"Count. {RULE}"],
        env={
            **os.environ,
            "HOME": str(folder),
            "CONTEXTSTASH_DB": str(folder / "sessions.db"),
            "ANTHROPIC_BASE_URL": provider.url,
            "ANTHROPIC_API_KEY": "none",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_AUTO_COMPACT_WINDOW": "100000",
        },
        cwd=project,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    return provider.turns()


def test_an_automatic_compaction_asks_no_model_and_keeps_the_users_words(tmp_path: Path) -> None:
    program = f'exec {sys.executable} -m contextstash "$@"'
    with coding_provider(COMMAND, steps=24, bytes_per_token=1.2, thinks=True) as provider:
        turns = run_claude(tmp_path, provider, program)
        assert not any(each.compacts for each in provider.asked)
    compacted = [after for before, after in pairwise(turns) if after.tokens < before.tokens / 1.5]
    assert compacted
    for request in compacted:
        assert RULE in request.text
        assert "[contextstash: hand-off of session" in request.text
        blocks = [block for message in request.body["messages"] for block in message["content"]]
        assert not any(isinstance(block, dict) and block.get("type") == "thinking" for block in blocks)
    events, messages = asyncio.run(recorded(tmp_path))
    transcripts = list((tmp_path / ".claude" / "projects").glob("*/*.jsonl"))
    assert events.count("compaction") == sum(path.read_text().count('"compact_boundary"') for path in transcripts)
    replies = [line for path in transcripts for line in path.read_text().splitlines() if '"tool_use"' in line]
    written = {json.loads(line)["uuid"] for line in replies if '"api-request' not in line and "<synthetic>" not in line}
    assert len(messages) == len(set(messages))
    assert written <= set(messages)


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_without_our_program_the_client_compacts_itself(tmp_path: Path, program: str) -> None:
    with coding_provider(COMMAND, steps=24, bytes_per_token=1.2) as provider:
        run_claude(tmp_path, provider, program)
        assert any(each.compacts for each in provider.asked)


async def recorded(folder: Path) -> tuple[list[str], list[str]]:
    """The kinds of the session's events, and the keys of its messages."""
    [transcript] = (folder / ".claude" / "projects").glob("*/*.jsonl")
    async with await open_sqlite(folder / "sessions.db") as store:
        events = await store.read_events(transcript.stem)
        messages = await store.read_messages(transcript.stem, bodies=False)
        return [event.kind for event in events], [message.key or "" for message in messages]
