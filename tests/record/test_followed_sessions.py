"""A followed transcript: its view is reduced automatically, the estimate is of what the client sends, the client's own
compactions are events, and our own calls are not found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.stash import Stash
from contextstash_storage.records import Cursor, Usage
from tests.support.client_files import SESSION, ClientTranscript
from tests.support.stashes import stash_at

SOURCE = "transcript.jsonl"
FOLLOWED = TranscriptSession("followed", "anthropic", agent="claude-code", model="claude-sonnet-4-5", source=SOURCE)


def exchange(number: int, prompt_tokens: int) -> list[TranscriptMessage]:
    """A call with a large result, and the usage that the client's provider reported for it."""
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "Bash", "input": {"command": f"make {number}"}}
    output = "".join(f"{line}: built part {number}\n" for line in range(900))
    result = {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": output}
    usage = Usage(prompt_tokens=prompt_tokens, completion_tokens=30)
    return [
        TranscriptMessage({"role": "assistant", "content": [call]}, key=f"a{number}", usage=usage),
        TranscriptMessage({"role": "user", "content": [result]}, key=f"u{number}"),
    ]


async def follow(stash: Stash, exchanges: int) -> list[str]:
    """Record exchanges one by one; returns what was done automatically."""
    done = []
    for number in range(exchanges):
        messages = exchange(number, 20_000 + 8_000 * number)
        if number == 0:
            task = TranscriptMessage({"role": "user", "content": "Build all parts; never touch the tests."}, key="t")
            messages.insert(0, task)
        answer = await stash.record_transcript(FOLLOWED, messages, Cursor(source=SOURCE, offset=number))
        done += answer.done
    return done


async def test_its_view_is_pruned_and_compacted_automatically_without_a_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"window": 60_000, "prune_automatic": False}
    async with stash_at(tmp_path / "f.db", api_key="unused", automatic=True, **settings) as stash:
        done = await follow(stash, 14)
        assert any("written by extractive" in line for line in done)
        assert (await stash.list_calls("followed")).calls[0].purpose == "agent"
        summary = await stash.get_summary("followed")
    assert "never touch the tests" in summary.summary


async def test_the_estimate_still_shows_what_the_client_sends_part_by_part(tmp_path: Path) -> None:
    estimates = []
    for automatic in (False, True):
        async with stash_at(tmp_path / f"{automatic}.db", automatic=automatic, window=60_000) as stash:
            assert bool(await follow(stash, 14)) == automatic
            estimates.append(await stash.estimate_context("followed"))
    untouched, managed = estimates
    assert abs(managed.tokens - untouched.tokens) <= 0.01 * untouched.tokens
    assert managed.level == untouched.level
    for part, tokens in untouched.breakdown.items():
        assert abs(managed.breakdown[part] - tokens) <= 0.02 * untouched.tokens, part


@pytest.fixture
def client(tmp_path: Path, stash: Stash) -> ClientTranscript:
    return ClientTranscript(tmp_path, stash)


async def test_each_compaction_of_the_client_is_an_event_with_its_window_before_and_after(
    stash: Stash, client: ClientTranscript
) -> None:
    for _ in range(2):
        client.write("user", "word " * 3_000)
        client.say("Read.", prompt_tokens=68_959)
        client.compact()
    client.say("Going on.", prompt_tokens=9_000)
    await client.read()
    await client.read()
    events = await stash.read_events(SESSION)
    assert [(event.kind, event.strategy) for event in events] == [("compaction", "client")] * 2
    assert [event.seq for event in events] == [3, 6]
    assert events[0].tokens_before == pytest.approx(68_964, abs=20)
    assert events[0].tokens_before - events[0].tokens_after > 3_000
    assert events[0].created_at is not None
    assert events[0].created_at.year == 2026
    status = await stash.context_status(SESSION)
    assert [change.strategy for change in status.changes] == ["client", "client"]


async def test_search_does_not_find_our_own_calls_and_their_results(stash: Stash, client: ClientTranscript) -> None:
    client.write("user", "Where is the port set?")
    client.call("Bash", {"command": "cat config.toml"}, "zebraport = 5433")
    client.call("mcp__contextstash__search_history", {"query": "zebraport"}, "1 hit: zebraport = 5433")
    client.call("contextstash.get_archived_output", {"handle": "out_aaaaaaaa"}, "zebraport = 5433")
    client.call("Bash", {"command": "contextstash search zebraport"}, "out_aaaaaaaa zebraport = 5433")
    await client.read()
    hits = (await stash.search_history("zebraport", session_id=SESSION)).hits
    assert [hit.seq for hit in hits] == [2]
