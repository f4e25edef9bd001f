"""`contextstash status`: how full a session's context is, its model calls, and what happened to it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from contextstash import open_stash_sync
from tests.cli.conftest import call, result
from tests.support.command_line import ANSI, WINDOW, CommandLine, Orchard


def test_status_says_how_full_the_session_is(orchard: Orchard) -> None:
    status = orchard.json("status", *WINDOW)
    estimate = status["estimate"]
    assert status["session_id"] == orchard.session
    assert estimate["window"] == 32_000
    shown = orchard.run("status", orchard.session[:8], *WINDOW).stdout
    assert f"{estimate['tokens']:,} of {estimate['usable']:,} usable tokens" in shown
    trigger = estimate["tokens_trigger"]
    assert trigger["value"] == estimate["tokens"]
    assert re.search(f"compaction at {trigger['threshold']:,} tokens +\\S+ +{trigger['percent']:.0f} %", shown)
    assert f"{status['messages']} messages in history (0 summarized)" in shown
    assert ANSI not in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_status_names_the_last_summary(orchard: Orchard) -> None:
    compacted = orchard.json("compact", orchard.session, *WINDOW)
    shown = orchard.run("status", orchard.session, *WINDOW).stdout
    assert f"({compacted['messages_summarized']} summarized)" in shown
    assert f"Last summary: {compacted['messages_summarized']} messages in " in shown
    assert compacted["summary_id"] in shown
    assert "Saved" not in shown  # unknown: the client sends its own history


def test_the_clients_window_and_our_own_view_are_one_count_each_and_a_change_of_ours_is_shown(orchard: Orchard) -> None:
    estimate = orchard.json("status", *WINDOW)["estimate"]
    assert sum(estimate["breakdown"].values()) == estimate["tokens"]
    pruned = orchard.json("prune", orchard.session, "--keep-last", "2", *WINDOW)
    assert estimate["view_tokens"] == pruned["tokens_before"]
    lines = orchard.run("status", orchard.session, *WINDOW).stdout.splitlines()
    assert f"The client sends {estimate['tokens']:,} of {estimate['usable']:,} usable tokens" in lines[2]
    [own] = [line for line in lines if line.startswith("contextstash's own view")]
    after = pruned["tokens_after"]
    assert f"has {after:,} tokens by its own count (last prune: " in own
    assert f"{pruned['tokens_before']:,} → {after:,})" in own


def test_a_clients_own_window_is_not_called_by_a_step_that_would_not_change_it(orchard: Orchard) -> None:
    options = (*WINDOW, "--set", "prune_at=0.01")
    assert orchard.json("status", *options)["estimate"]["level"] == "prune"
    [line] = [each for each in orchard.run("status", *options).stdout.splitlines() if each.startswith("The client")]
    assert line.endswith("%, level filling up")


def test_a_session_without_a_title_is_named_by_its_first_prompt(contextstash: CommandLine) -> None:
    with open_stash_sync(contextstash.database) as stash:
        stash.session("loop").request([{"role": "user", "content": "Plant the old quince again."}])
    assert contextstash.run("status", "loop").stdout.splitlines()[:2] == ["Plant the old quince again.", "loop"]


def test_outputs_that_are_cut_are_tool_results_and_placeholders_are_named_as_such(contextstash: CommandLine) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Build it."}]
    for number in range(8):
        messages += [{**call(number), "usage": None}, result(number)]
    limits = {"output_bytes": 4_000, "automatic": False}
    with open_stash_sync(contextstash.database, settings=limits) as stash:
        stash.session("loop").request(messages)
    parts = contextstash.json("status", "loop")["estimate"]["breakdown"]
    assert "archived" not in parts
    assert parts["tool_results"] > 0.8 * sum(parts.values())
    contextstash.run("prune", "loop", "--keep-last", "1")
    shown = contextstash.run("status", "loop").stdout
    assert re.search(r"^placeholders +[\d,]+ ", shown, flags=re.MULTILINE)
    assert "7 tool outputs archived." in shown


@pytest.mark.usefixtures("session")
def test_calls_have_tokens_and_a_cost(contextstash: CommandLine) -> None:
    calls = contextstash.json("status", "--calls")["calls"]
    assert [call["prompt_tokens"] for call in calls] == [1_000 + 900 * number for number in range(6)]
    assert all(call["cost"] > 0 for call in calls)
    assert "6 calls, 19,500 prompt tokens" in contextstash.run("status", "--calls").stdout


@pytest.mark.usefixtures("session")
def test_events_have_tokens_before_and_after(contextstash: CommandLine) -> None:
    events = contextstash.json("status", "--events")
    assert [event["kind"] for event in events] == ["prune", "compaction"]
    prune = next(event for event in events if event["kind"] == "prune")
    assert prune["tokens_after"] < prune["tokens_before"]
    assert prune["seq"] == 13
    text = contextstash.run("status", "--events").stdout
    assert f"{prune['tokens_before']:,} → {prune['tokens_after']:,}" in text


def test_a_session_without_calls_and_events_says_so(contextstash: CommandLine) -> None:
    path = contextstash.folder / "short.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello."}]))
    contextstash.run("import", path)
    assert contextstash.run("status", "--calls").stdout.startswith("No model calls in session ")
    assert contextstash.run("status", "--events").stdout.startswith("No events in session ")
