"""`contextstash status --calls`: the model calls of a session."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import CommandLine


@pytest.mark.usefixtures("session")
def test_calls_have_tokens_and_growth(contextstash: CommandLine) -> None:
    calls = contextstash.json("status", "--calls")["calls"]
    assert [call["prompt_tokens"] for call in calls] == [1_000 + 900 * number for number in range(6)]
    assert [call.get("growth_tokens") for call in calls] == [None, 900, 900, 900, 900, 900]
    assert all(call["cost"] > 0 for call in calls)
    assert "6 calls, 19,500 prompt tokens" in contextstash.run("status", "--calls").stdout


def test_a_session_without_calls_says_so(contextstash: CommandLine) -> None:
    path = contextstash.folder / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    contextstash.run("import", path)
    assert contextstash.run("status", "--calls").stdout.startswith("No model calls in session ")
