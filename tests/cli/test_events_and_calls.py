"""`contextstash events` and `contextstash calls`: what happened to a session's context, and what its calls took."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import CommandLine, failure_of


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


@pytest.mark.usefixtures("session")
def test_events_tell_what_was_done_before_and_after(contextstash: CommandLine) -> None:
    events = contextstash.json("events")
    assert [event["kind"] for event in events if event["kind"] != "level"] == ["prune", "compaction"]
    prune = next(event for event in events if event["kind"] == "prune")
    assert prune["tokens_after"] < prune["tokens_before"]
    assert prune["seq"] == 13
    text = contextstash.run("events").stdout
    assert f"{prune['tokens_before']:,} -> {prune['tokens_after']:,}" in text


@pytest.mark.usefixtures("session")
def test_calls_tell_tokens_bytes_and_growth(contextstash: CommandLine) -> None:
    calls = contextstash.json("calls")["calls"]
    assert [call["prompt_tokens"] for call in calls] == [1_000 + 900 * number for number in range(6)]
    assert [call.get("growth_tokens") for call in calls] == [None, 900, 900, 900, 900, 900]
    sizes = [call["request_bytes"] for call in calls]
    assert sizes == sorted(sizes)
    assert sizes[0] == len('{"role":"user","content":"Build it."}')
    assert all(call["cost"] > 0 for call in calls)
    assert "6 calls, 19,500 prompt tokens" in contextstash.run("calls").stdout


def test_the_request_of_a_call_is_put_together_again(contextstash: CommandLine, session: Path) -> None:
    third = contextstash.json("calls")["calls"][2]["call_id"]
    sent = json.loads(contextstash.run("calls", "--request", str(third)).stdout)
    recorded = json.loads(session.read_text())[:5]
    assert [message["role"] for message in sent] == [message["role"] for message in recorded]
    assert [message["content"] for message in sent] == [message["content"] for message in recorded]


@pytest.mark.usefixtures("session")
def test_a_call_that_is_not_there_is_an_error_in_one_line(contextstash: CommandLine) -> None:
    assert "no call 99" in failure_of(contextstash.run("calls", "--request", "99"))


def test_a_session_without_events_or_calls_says_so(contextstash: CommandLine) -> None:
    path = contextstash.folder / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    contextstash.run("import", path)
    assert "Nothing has happened" in contextstash.run("events").stdout
    assert "No model calls are known" in contextstash.run("calls").stdout


@pytest.mark.usefixtures("session")
def test_a_summary_is_opened_down_to_its_messages(contextstash: CommandLine) -> None:
    compacted = next(event for event in contextstash.json("events") if event["kind"] == "compaction")
    database = contextstash.json("sessions")["sessions"][0]["session_id"]
    summary_id = contextstash.json("show", _summary_of(contextstash))["summary_id"]
    text = contextstash.run("show", summary_id).stdout
    assert f"contextstash show {database} --first 0" in text
    assert compacted["strategy"] in text


def _summary_of(contextstash: CommandLine) -> str:
    with sqlite3.connect(contextstash.database) as database:
        rows = database.execute("SELECT record FROM edits").fetchall()
    [found] = [json.loads(record) for (record,) in rows if '"summary"' in record]
    return str(found["summary_id"])
