"""Models that check what stands before their thinking: an edit never invalidates a thinking block that is sent."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from tests.support.proxies import (
    ID,
    OLD,
    CachingProvider,
    Refusal,
    RunningProxy,
    in_stash,
    placeholders,
    request_of,
    session,
    turn,
)

MODEL = "claude-opus-5-5"


@pytest.fixture(autouse=True)
def checked_signatures(provider: CachingProvider) -> None:
    provider.refusals.append(Refusal(400, "Invalid `signature` in `thinking` block", is_broken, times=1000))


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

    def __init__(self, proxy: RunningProxy) -> None:
        self._proxy = proxy
        self.messages: list[dict[str, Any]] = []

    def say(self, *messages: dict[str, Any]) -> None:
        self.messages += messages
        self._proxy.clock.now += 10
        response = self._proxy.send(request_of(self.messages, model=MODEL))
        assert response.status_code == 200, response.text

    def reply(self, content: dict[str, Any]) -> None:
        signature = signature_after(self._proxy.provider.bodies[-1]["messages"])
        thinking = {"type": "thinking", "thinking": "hm", "signature": signature}
        self.messages.append({"role": "assistant", "content": [thinking, content]})

    def work(self, first: int, turns: int) -> None:
        """So many turns of a tool loop."""
        for number in range(first, first + turns):
            call, result = turn(number, session(1)[2]["content"][0]["content"].replace("line 0", f"line {number}"))
            self.reply(call["content"][0])
            self.say(result)


def test_what_was_sent_stays_while_thinking_follows_it_also_between_tool_loops(proxy: RunningProxy) -> None:
    agent = Agent(proxy)
    agent.say({"role": "user", "content": "Fix the bug."})
    agent.work(0, 7)
    proxy.clock.now += 400
    agent.work(7, 1)
    agent.reply({"type": "text", "text": "Fixed."})
    proxy.clock.now += 400
    agent.say({"role": "user", "content": "Now the next one."})
    agent.work(20, 3)
    assert [placeholders(body) for body in proxy.provider.bodies] == [[]] * len(proxy.provider.bodies)
    assert json.dumps(proxy.provider.bodies[-1]["messages"]).count('"signature"') == 12
    assert proxy.provider.refusals[0].times == 1000


def test_old_outputs_leave_if_no_thinking_follows_them(proxy: RunningProxy) -> None:
    agent = Agent(proxy)
    agent.messages = session(8)
    agent.say({"role": "user", "content": "Go on."})
    proxy.clock.now += 400
    agent.say({"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And now?"})
    assert placeholders(proxy.provider.bodies[-1]) == [*OLD, "toolu_6"]
    agent.work(20, 3)
    assert placeholders(proxy.provider.bodies[-1]) == [*OLD, "toolu_6"]
    assert proxy.provider.refusals[0].times == 1000


def test_a_prune_by_a_tool_waits_until_the_client_compacts(proxy: RunningProxy) -> None:
    agent = Agent(proxy)
    agent.say({"role": "user", "content": "Fix the bug."})
    agent.work(0, 8)
    agent.reply({"type": "text", "text": "Fixed."})
    agent.say({"role": "user", "content": "Now the next one."})
    pruned = in_stash(proxy.database, lambda stash: stash.prune_tool_outputs(ID, keep_last=6))
    agent.work(8, 3)
    assert len(pruned.archived) == 2
    assert placeholders(proxy.provider.bodies[-1]) == []
    agent.reply({"type": "text", "text": "Fixed, too."})
    agent.messages = [each for each in agent.messages if each["role"] == "user"][:1] + session(2)[1:]
    proxy.clock.now += 400
    agent.say({"role": "assistant", "content": "Compacted."}, {"role": "user", "content": "And the last one."})
    assert proxy.provider.refusals[0].times == 1000
