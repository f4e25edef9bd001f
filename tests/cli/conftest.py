"""A separate command line for each test, and sessions recorded with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, Orchard


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    return Orchard(tmp_path)


def call(number: int) -> dict[str, Any]:
    block = {"type": "tool_use", "id": f"toolu_{number}", "name": "bash", "input": {"command": f"make {number}"}}
    usage = {"input_tokens": 1_000 + 900 * number, "output_tokens": 40}
    return {"role": "assistant", "model": "claude-haiku-4-5", "content": [block], "usage": usage}


def result(number: int) -> dict[str, Any]:
    text = "".join(f"{line}: built {number}\n" for line in range(400))
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]}


@pytest.fixture
def session(contextstash: CommandLine) -> Path:
    """A recorded session of six calls, pruned and compacted."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
    for number in range(6):
        messages += [call(number), result(number)]
    path = contextstash.folder / "build.json"
    path.write_text(json.dumps(messages))
    assert contextstash.run("import", path).returncode == 0
    name = contextstash.json("sessions")["sessions"][0]["session_id"]
    assert contextstash.run("prune", name, "--keep-last", "1").returncode == 0
    assert contextstash.run("compact", name, "--strategy", "extractive").returncode == 0
    return path
