"""The real Claude Code with our plugin: its compaction is answered by us, and if we fail it compacts itself.

Runs if `claude` is on the PATH, in a version whose mods can answer (2.1.326).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from contextstash.clients.client import PLUGINS
from tests.support.command_line import CommandLine
from tests.support.real_clients import SECONDS, Asked, CodingProvider, coding_provider, recorded, run_claude

RULE = "Never round the fines."
COMMAND = "seq 1 2000 | sed 's/^/loan number /'"
STEPS, BYTES_PER_TOKEN = 10, 1.0
"""The client's own instructions take 50,000 tokens, each step 2,600; it compacts at 67,000 (2.1.330)."""
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
    mod = copy / "hooks" / "mod.js"
    mod.write_text(mod.read_text().replace("SECONDS = 10 ", "SECONDS = 100 "))  # a busy machine is not what is tested
    launcher = copy / "bin" / "contextstash"
    launcher.write_text(f"#!/bin/sh\n{program}\n")
    return copy


def run(folder: Path, provider: CodingProvider, program: str) -> list[Asked]:
    """A session with more outputs than its window takes; returns the main agent's requests."""
    (folder / "project").mkdir()
    arguments = ("--plugin-dir", plugin(folder, program), "--allowedTools", "Bash", "--", f"Count. {RULE}")
    run_claude(folder, provider.url, *arguments, needed=(2, 1, 326))
    return provider.turns()


def test_an_automatic_compaction_asks_no_model_and_keeps_the_users_words(tmp_path: Path) -> None:
    program = f'exec {sys.executable} -m contextstash "$@"'
    with coding_provider(COMMAND, STEPS, bytes_per_token=BYTES_PER_TOKEN, thinks=True) as provider:
        turns = run(tmp_path, provider, program)
        assert not any(each.compacts for each in provider.asked)
    compacted = [after for before, after in pairwise(turns) if after.tokens < before.tokens]
    assert compacted
    for request in compacted:
        assert RULE in request.text
        assert "[contextstash: hand-off of session" in request.text
        blocks = [block for message in request.body["messages"] for block in message["content"]]
        assert not any(isinstance(block, dict) and block.get("type") == "thinking" for block in blocks)
    transcripts = list((tmp_path / ".claude" / "projects").glob("*/*.jsonl"))
    CommandLine(tmp_path).json("import", *transcripts)  # the client does not wait for the hook at its end
    events, messages = asyncio.run(recorded(tmp_path, transcripts[0].stem))
    assert events.count("compaction") == sum(path.read_text().count('"compact_boundary"') for path in transcripts)
    replies = [line for path in transcripts for line in path.read_text().splitlines() if '"tool_use"' in line]
    written = {json.loads(line)["uuid"] for line in replies if '"api-request' not in line and "<synthetic>" not in line}
    assert len(messages) == len(set(messages))
    assert written <= set(messages)


@pytest.mark.parametrize("program", BROKEN.values(), ids=BROKEN)
def test_without_our_program_the_client_compacts_itself(tmp_path: Path, program: str) -> None:
    with coding_provider(COMMAND, STEPS, bytes_per_token=BYTES_PER_TOKEN) as provider:
        run(tmp_path, provider, program)
        assert any(each.compacts for each in provider.asked)
