"""`contextstash status --events`: what happened to a session's context."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import CommandLine, write_transcript


@pytest.mark.usefixtures("session")
def test_events_have_tokens_before_and_after(contextstash: CommandLine) -> None:
    events = contextstash.json("status", "--events")
    assert [event["kind"] for event in events if event["kind"] != "level"] == ["prune", "compaction"]
    prune = next(event for event in events if event["kind"] == "prune")
    assert prune["tokens_after"] < prune["tokens_before"]
    assert prune["seq"] == 13
    text = contextstash.run("status", "--events").stdout
    assert f"{prune['tokens_before']:,} → {prune['tokens_after']:,}" in text


def test_a_session_without_events_says_so(contextstash: CommandLine) -> None:
    path = contextstash.folder / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    contextstash.run("import", path)
    assert contextstash.run("status", "--events").stdout.startswith("No events in session ")


def test_events_of_an_imported_session_are_in_the_order_of_their_times(contextstash: CommandLine) -> None:
    path = contextstash.folder / "session.jsonl"
    write_transcript(path, outputs=12)
    contextstash.run("import", path, "--set", "window=20000")
    contextstash.run("prune", "5b1f", "--keep-last", "1")
    lines = contextstash.run("status", "--events").stdout.splitlines()[1:]
    times = [line[:16] for line in lines]
    assert times == sorted(times)
    assert times[0].startswith("2026-03-03 ")
    assert "prune" in lines[-1]
