"""`contextstash events`: what happened to a session's context."""

from __future__ import annotations

import json

import pytest

from tests.support.command_line import CommandLine


@pytest.mark.usefixtures("session")
def test_events_have_tokens_before_and_after(contextstash: CommandLine) -> None:
    events = contextstash.json("events")
    assert [event["kind"] for event in events if event["kind"] != "level"] == ["prune", "compaction"]
    prune = next(event for event in events if event["kind"] == "prune")
    assert prune["tokens_after"] < prune["tokens_before"]
    assert prune["seq"] == 13
    text = contextstash.run("events").stdout
    assert f"{prune['tokens_before']:,} → {prune['tokens_after']:,}" in text


def test_a_session_without_events_says_so(contextstash: CommandLine) -> None:
    path = contextstash.folder / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    contextstash.run("import", path)
    assert "No events in this session yet" in contextstash.run("events").stdout
