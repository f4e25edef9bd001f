"""A client's compactions in the log, and our own tools' calls in its transcript."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash.stash import Stash
from tests.support.client_files import SESSION, ClientTranscript


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
