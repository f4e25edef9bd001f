"""A followed transcript: its view is reduced automatically, the estimate is of what the client sends, the client's own
edits (compactions, rewinds, resumed branches) are the view's, and our own calls are not found."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash.stash import Stash
from contextstash_storage.records import Call, Cursor, Event, Usage
from tests.support.client_files import SESSION, ClientTranscript
from tests.support.effort import examples
from tests.support.stashes import counters_in_step, history, stash_at, valid_view, view

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
        recorded = await stash.record_transcript(FOLLOWED, messages, Cursor(source=SOURCE, offset=number))
        done += (await stash.reducer.after_recording(recorded))[1]
    return done


async def test_its_view_is_pruned_and_compacted_automatically_without_a_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"window": 60_000, "prune_automatic": False}
    async with stash_at(tmp_path / "f.db", api_key="unused", automatic=True, **settings) as stash:
        done = await follow(stash, 14)
        assert any("written by extractive" in line for line in done)
        assert (await stash.store.read_log("followed", Call))[0].purpose == "agent"
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
    events = await stash.store.read_log(SESSION, Event)
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


WINDOW_FILE = "window.jsonl"
WINDOW = TranscriptSession("w", "anthropic", agent="pi", model="claude-sonnet-4-5", source=WINDOW_FILE)


def said(key: str, role: str = "user", **about: Any) -> TranscriptMessage:
    """A message whose text is its key."""
    body = {"role": role, "content": [{"type": "text", "text": key}]}
    return TranscriptMessage(body=body, key=key, **about)


def summary(key: str, **about: Any) -> TranscriptMessage:
    return said(key, covers_before=True, **about)


def call(key: str) -> list[TranscriptMessage]:
    """A call, and its result."""
    made = {"type": "tool_use", "id": f"toolu_{key}", "name": "Bash", "input": {}}
    given = {"type": "tool_result", "tool_use_id": f"toolu_{key}", "content": key}
    return [
        TranscriptMessage({"role": "assistant", "content": [made]}, key=f"{key}?"),
        TranscriptMessage({"role": "user", "content": [given]}, key=key),
    ]


async def record(stash: Stash, messages: list[TranscriptMessage]) -> None:
    await stash.record_transcript(WINDOW, messages, Cursor(source=WINDOW_FILE, offset=1))


async def shown(stash: Stash) -> list[str]:
    """The texts in the view, in order; for a tool call the tool's name."""
    found = []
    for message in await view(stash, "w"):
        content = message["content"]
        blocks = [{"text": content}] if isinstance(content, str) else content
        found += [str(block.get("text") or block.get("content") or block.get("name")) for block in blocks]
    return found


TALK = [said("a"), said("b", "assistant"), said("c"), said("d", "assistant")]
KEPT = [said("a"), said("b", "assistant"), said("c"), summary("S", covers_before_key="c")]
E_F = [said("e"), said("f", "assistant")]

SHOWN: dict[str, list[tuple[list[TranscriptMessage], str]]] = {
    "messages that a compaction kept follow its summary": [
        ([*TALK, summary("S", covers_before_key="c"), said("e")], "S c d e")
    ],
    "a summary that is read again changes nothing": [(KEPT, "S c"), (KEPT, "S c")],
    "a key that is not in the store is ignored": [([*TALK[:2], summary("S", covers_before_key="nowhere")], "S")],
    "what is kept never starts with a result whose call is covered": [
        ([said("a"), *call("one"), *call("two"), summary("S", covers_before_key="two")], "S Bash two")
    ],
    "a later compaction covers an earlier one and what that kept": [
        ([*TALK, summary("S", covers_before_key="c"), *E_F], "S c d e f"),
        ([summary("T", covers_before_key="e")], "T e f"),
    ],
    "an abandoned branch is shown again when the client resumes it": [
        (TALK[:3], "a b c"),
        ([said("d", rewind_to_key="a"), said("e", "assistant")], "a d e"),
        ([said("f", "assistant", rewind_to_key="c")], "a b c f"),
        ([said("g", rewind_to_key="e")], "a d e g"),
    ],
    "a rewind to before a compaction hides its summary": [
        (KEPT, "S c"),
        ([said("d", "assistant", rewind_to_key="c")], "a b c d"),
        ([said("e", "assistant", rewind_to_key="S")], "S c e"),
    ],
}


@pytest.mark.parametrize("recordings", SHOWN.values(), ids=SHOWN.keys())
async def test_the_view_is_the_clients_window(
    stash: Stash, recordings: list[tuple[list[TranscriptMessage], str]]
) -> None:
    recorded: list[str] = []
    for messages, expected in recordings:
        await record(stash, messages)
        assert " ".join(await shown(stash)) == expected
        await counters_in_step(stash, "w")
        recorded += [key for each in messages if (key := str(each.key)) not in recorded]
    assert len(await history(stash, "w")) == len(recorded)


async def test_our_own_summary_is_undone_if_it_hides_messages_that_the_client_kept(stash: Stash) -> None:
    talk = [said(f"{turn}{role}" * 200, role) for turn in range(6) for role in ("user", "assistant")]
    await record(stash, talk)
    await stash.compact_session("w", summary="All turns so far were about the parser. " * 5)
    assert talk[2].key not in await shown(stash)
    await record(stash, [summary("S", covers_before_key=talk[2].key)])
    assert await shown(stash) == ["S", *(message.key for message in talk[2:])]
    await counters_in_step(stash, "w")


@pytest.mark.parametrize("following", [[said("c")], []], ids=["a message follows", "nothing follows"])
async def test_usage_that_is_reported_late_still_anchors_the_estimate(
    tmp_path: Path, following: list[TranscriptMessage]
) -> None:
    usage = Usage(prompt_tokens=30_000, completion_tokens=50)
    estimates = []
    for late in (False, True):
        reply = said("b", "assistant", usage=None if late else usage)
        session, cursor = replace(WINDOW, late_usage=("b", usage) if late else None), Cursor(source=WINDOW_FILE)
        async with stash_at(tmp_path / f"{late}.db") as stash:
            await record(stash, [said("a"), reply])
            async with stash_at(tmp_path / f"{late}.db") as other:  # hooks of one event run at the same time
                parallel = [each.record_transcript(session, following, cursor) for each in (stash, other, stash)]
                await asyncio.gather(*parallel)
            estimates.append(await stash.estimate_context("w"))
            [reported] = await stash.store.read_log("w", Call)
            assert reported.prompt_tokens == 30_000
    assert estimates[0].tokens == estimates[1].tokens
    assert "reported usage" in estimates[1].method


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["say", "call", "rewind", "compact", "keep"]), st.integers(0, 60)), max_size=25
)


def transcript_of(actions: list[tuple[str, int]]) -> list[TranscriptMessage]:
    """The transcript of a client that does these actions; the number of each selects the message it refers to."""
    messages = [said("m0")]
    for number, (action, about) in enumerate(actions, 1):
        key = f"m{number}"
        named = str(messages[about % len(messages)].key)
        if action == "call":
            messages += call(key)
        elif action == "rewind":
            messages.append(said(key, rewind_to_key=named.rstrip("?")))
        elif action == "say":
            messages.append(said(key, "assistant" if messages[-1].body["role"] == "user" else "user"))
        else:
            messages.append(summary(key, covers_before_key=named if action == "keep" else None))
    return messages


@settings(max_examples=examples(60))
@given(ACTIONS, st.integers(1, 9))
async def test_whatever_a_client_does_the_view_stays_valid_and_the_counters_in_step(
    actions: list[tuple[str, int]], size: int
) -> None:
    messages = transcript_of(actions)
    with tempfile.TemporaryDirectory() as folder:
        async with stash_at(Path(folder) / "d.db") as stash:
            for start in range(0, len(messages), size):
                await record(stash, messages[start : start + size])
                await record(stash, messages[start : start + size])
                await counters_in_step(stash, "w")
            await valid_view(stash, "anthropic", "w")
            assert len(await history(stash, "w")) == len(messages)
