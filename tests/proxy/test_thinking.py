"""Models that check what stands before their thinking: an edit never invalidates a thinking block that is sent."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.proxy.test_pruning import OLD, placeholders
from tests.support.caching_provider import CachingProvider, Refusal, caching_provider
from tests.support.proxies import Clock, RunningProxy, request_of, running_proxy, session, turn

MODEL = "claude-opus-5-5"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def provider(clock: Clock) -> Iterator[CachingProvider]:
    with caching_provider(clock) as running:
        running.refusals.append(Refusal(400, "Invalid `signature` in `thinking` block", is_broken, times=1000))
        yield running


@pytest.fixture
def proxy(provider: CachingProvider, clock: Clock, tmp_path: Path) -> Iterator[RunningProxy]:
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as running:
        yield running


def without_breakpoints(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_breakpoints(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_breakpoints(inner) for inner in value] if isinstance(value, list) else value


def signature_after(messages: list[dict[str, Any]]) -> str:
    """What a model signs: everything before its thinking, without the thinking that was left out there."""
    plain = [without_breakpoints(message) for message in messages]
    for message in plain:
        if isinstance(message["content"], str):
            message["content"] = [{"type": "text", "text": message["content"]}]
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()


def is_broken(body: dict[str, Any]) -> bool:
    return any(
        block["type"] == "thinking" and block["signature"] != signature_after(body["messages"][:place])
        for place, message in enumerate(body["messages"])
        for block in (message["content"] if isinstance(message["content"], list) else [])
    )


class Agent:
    """Sends requests and thinks about what the provider received, not about what it wrote."""

    def __init__(self, proxy: RunningProxy, provider: CachingProvider, clock: Clock) -> None:
        self._proxy, self._provider, self._clock = proxy, provider, clock
        self.messages: list[dict[str, Any]] = []

    def say(self, *messages: dict[str, Any]) -> None:
        self.messages += messages
        self._clock.now += 10
        response = self._proxy.send(request_of(self.messages, model=MODEL))
        assert response.status_code == 200, response.text

    def reply(self, content: dict[str, Any]) -> None:
        signature = signature_after(self._provider.bodies[-1]["messages"])
        thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
        self.messages.append({"role": "assistant", "content": [thinking, content]})

    def work(self, first: int, turns: int) -> None:
        """So many turns of a tool loop."""
        for number in range(first, first + turns):
            call, result = turn(number, session(1)[2]["content"][0]["content"].replace("line 0", f"line {number}"))
            self.reply(call["content"][0])
            self.say(result)


def test_in_a_tool_loop_the_edit_waits_and_at_its_end_thinking_is_left_out(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    agent = Agent(proxy, provider, clock)
    agent.say({"role": "user", "content": "Fix the bug."})
    agent.work(0, 7)
    clock.now += 400
    agent.work(7, 1)
    assert placeholders(provider.bodies[-1]) == []
    agent.reply({"type": "text", "text": "Fixed."})
    clock.now += 400
    agent.say({"role": "user", "content": "Now the next one."})
    assert placeholders(provider.bodies[-1]) == OLD
    assert '"thinking"' not in json.dumps(provider.bodies[-1]["messages"][3:])
    agent.work(20, 3)
    assert placeholders(provider.bodies[-1])[:5] == OLD
    assert json.dumps(provider.bodies[-1]["messages"]).count('"signature"') >= 3
    assert provider.refusals[0].times == 1000


def test_a_request_that_lets_the_api_drop_thinking_is_edited_at_once(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    provider.refusals.clear()
    messages = session(8)
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    messages = [
        {**message, "content": [thought, *message["content"]]} if message["role"] == "assistant" else message
        for message in messages
    ]
    drop = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    proxy.send(request_of(messages[:-2], model=MODEL, thinking=drop))
    clock.now += 400
    proxy.send(request_of(messages, model=MODEL, thinking=drop))
    assert placeholders(provider.bodies[-1]) == OLD
