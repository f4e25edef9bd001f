"""Models that bind their reasoning: large outputs are cut before they are first sent, by setting, and never after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contextstash.service.stash import Stash
from contextstash_storage.sqlite import open_sqlite
from tests.support.bound_reasoning import mismatched, reasoning_after
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import READ, RETRIEVAL, Clock, RunningProxy, request_of, running_proxy, turn

SESSION = "bound-1"
LIMIT = 2_000
CUT = {"first_cut_tokens": LIMIT}


def text_of(number: int) -> str:
    """Every third output is large: some 9,000 tokens."""
    lines = 900 if number % 3 == 0 else 20
    return "".join(f"line {number}-{k}: checked and found in order\n" for k in range(lines))


@pytest.fixture
def cutting(provider: CachingProvider, clock: Clock, tmp_path: Path) -> Iterator[RunningProxy]:
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=CUT) as running:
        yield running


def ask(proxy: RunningProxy, provider: CachingProvider, messages: list[dict[str, Any]], model: str) -> dict[str, Any]:
    """The request as the provider got it."""
    body = request_of(messages, model=model, tools=[READ, RETRIEVAL])
    assert proxy.send(body, {"x-claude-code-session-id": SESSION}).is_success
    found: dict[str, Any] = provider.asked[-1].json
    return found


def loop(
    proxy: RunningProxy, provider: CachingProvider, clock: Clock, model: str = "claude-opus-5-5", turns: int = 9
) -> list[dict[str, Any]]:
    """The requests of an agent, as the provider got them. Each piece of its thinking is bound to what was sent."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "Fix it."}]}]
    seen = []
    for number in range(turns):
        clock.now += 400 if number == 6 else 10
        seen.append(ask(proxy, provider, messages, model))
        call, result = turn(number, text_of(number))
        thinking = reasoning_after("anthropic", seen[-1], number)
        messages += [{**call, "content": [thinking, *call["content"]]}, result]
    seen.append(ask(proxy, provider, messages, model))
    return seen


def outputs(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [str(block["content"]) for block in blocks if block["type"] == "tool_result"]


def test_large_outputs_are_cut_in_their_first_request_and_stay_so(
    provider: CachingProvider, cutting: RunningProxy, clock: Clock
) -> None:
    seen = loop(cutting, provider, clock)
    last = outputs(seen[-1])
    assert [len(text) < len(text_of(number)) for number, text in enumerate(last)] == [True, False, False] * 3
    for body in seen:
        assert outputs(body) == last[: len(outputs(body))]
        assert mismatched("anthropic", body) == 0
    assert "get_archived_output" in last[0] or "out_" in last[0]
    assert text_of(0).splitlines()[0] in last[0]
    assert text_of(0).splitlines()[-1] in last[0]


def test_the_whole_is_one_retrieval_away(provider: CachingProvider, cutting: RunningProxy, clock: Clock) -> None:
    loop(cutting, provider, clock, turns=2)

    async def read() -> str:
        stash = Stash(await open_sqlite(cutting.database))
        try:
            hits = (await stash.search_history("0-450", session_id=SESSION)).hits
            handle = next(hit.handle for hit in hits if hit.handle)
            return (await stash.get_archived_output(handle, session_id=SESSION, pattern="0-450:")).text
        finally:
            await stash.close()

    assert "line 0-450: checked" in asyncio.run(read())


def test_restoring_one_changes_nothing_that_was_sent(
    provider: CachingProvider, cutting: RunningProxy, clock: Clock
) -> None:
    before = loop(cutting, provider, clock, turns=3)

    async def restore() -> str:
        stash = Stash(await open_sqlite(cutting.database))
        try:
            hits = (await stash.search_history("0-450", session_id=SESSION)).hits
            handle = next(hit.handle for hit in hits if hit.handle)
            return str((await stash.restore_outputs([handle], session_id=SESSION)).note)
        finally:
            await stash.close()

    note = asyncio.run(restore())
    assert "after the client's next compaction" in note
    assert "get_archived_output returns an output now" in note
    call, result = turn(3, "short")
    thinking = reasoning_after("anthropic", before[-1], 3)
    client = json.loads(json.dumps(before[-1]["messages"]))
    client += [{**call, "content": [thinking, *call["content"]]}, result]
    after = ask(cutting, provider, client, "claude-opus-5-5")
    assert outputs(after)[:3] == outputs(before[-1])
    assert mismatched("anthropic", after) == 0


def test_another_process_shows_them_in_the_same_way(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=CUT) as first:
        before = loop(first, provider, clock)[-1]
    client = json.loads(json.dumps(before))
    for number, block in enumerate(b for m in client["messages"] for b in m["content"] if b["type"] == "tool_result"):
        block["content"] = text_of(number)
    with running_proxy(provider.url, tmp_path / "stash.db", clock, settings=CUT) as second:
        assert outputs(ask(second, provider, client["messages"], "claude-opus-5-5")) == outputs(before)


def test_what_went_out_whole_is_never_cut_afterwards(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    database = tmp_path / "stash.db"
    with running_proxy(provider.url, database, clock) as whole:
        sent = loop(whole, provider, clock)[-1]
    assert outputs(sent) == [text_of(number) for number in range(9)]
    with running_proxy(provider.url, database, clock, settings=CUT) as cutting:
        assert outputs(ask(cutting, provider, sent["messages"], "claude-opus-5-5")) == outputs(sent)


def test_models_that_bind_nothing_get_them_whole(
    provider: CachingProvider, cutting: RunningProxy, clock: Clock
) -> None:
    assert outputs(loop(cutting, provider, clock, "claude-sonnet-4-5", turns=3)[-1])[0] == text_of(0)


def test_without_the_setting_nothing_is_cut(provider: CachingProvider, proxy: RunningProxy, clock: Clock) -> None:
    assert outputs(loop(proxy, provider, clock, turns=3)[-1])[0] == text_of(0)
