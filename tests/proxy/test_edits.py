"""When the proxy prunes, and what the provider's cache and the bill see of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from contextstash.stash import Stash
from tests.support.proxies import (
    ID,
    OLD,
    READ,
    CachingProvider,
    Clock,
    Refusal,
    RunningProxy,
    in_stash,
    placeholders,
    play,
    prune_cold,
    request_of,
    running_proxy,
    session,
    turn,
)


def test_a_warm_cache_is_never_broken(proxy: RunningProxy) -> None:
    play(proxy, session(40))
    assert [placeholders(body) for body in proxy.provider.bodies] == [[]] * 41


def test_old_outputs_leave_when_the_cache_is_cold_and_stay_away_when_it_is_warm_again(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    pruned = placeholders(proxy.provider.bodies[-1])
    assert pruned == OLD
    messages += turn(8, "short")
    play(proxy, messages, first=len(messages))
    assert placeholders(proxy.provider.bodies[-1]) == pruned
    assert proxy.provider.usage[-1]["cache_creation_input_tokens"] < 200


def test_edits_hold_in_a_new_process(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    messages = session(8)
    with running_proxy(provider, tmp_path / "stash.db", clock) as first:
        play(first, messages[:-2])
        clock.now += 400
        play(first, messages, first=len(messages))
    messages += turn(8, "short")
    with running_proxy(provider, tmp_path / "stash.db", clock) as second:
        play(second, messages, first=len(messages))
    before, after = provider.asked[-2].data, provider.asked[-1].data
    assert placeholders(provider.bodies[-1]) == OLD
    assert before[: len(before) // 2] == after[: len(before) // 2]
    assert provider.usage[-1]["cache_creation_input_tokens"] < 200


def test_nothing_is_pruned_without_the_retrieval_tool(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2], tools=[READ])
    proxy.clock.now += 400
    play(proxy, messages, first=len(messages), tools=[READ])
    assert placeholders(proxy.provider.bodies[-1]) == []


def test_a_request_that_is_too_long_is_shrunk_and_the_client_never_sees_the_refusal(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.provider.window = 20_000
    proxy.clock.now += 10
    response = proxy.send(request_of(messages))
    assert response.status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == OLD[:5]
    assert proxy.engine.faults == 0


def test_the_first_request_of_a_long_session_is_healed_too(proxy: RunningProxy) -> None:
    proxy.provider.window = 20_000
    assert proxy.send(request_of(session(8))).status_code == 200
    assert len(proxy.provider.asked) == 2


def test_a_refused_edited_request_goes_out_unedited_once_and_the_session_is_left_alone(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])
    proxy.provider.refusals.append(
        Refusal(400, "messages.3: some rule", lambda body: bool(placeholders(body)), times=9)
    )
    proxy.clock.now += 400
    assert proxy.send(request_of(messages)).status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == []
    assert proxy.provider.asked[-1].data == json.dumps(request_of(messages)).encode()
    assert "status 400" in str(proxy.state(ID).left_alone)
    proxy.clock.now += 400
    proxy.send(request_of(messages + turn(8, "x")))
    assert (
        placeholders(proxy.provider.bodies[-1]),
        len(proxy.provider.refusals),
        proxy.provider.refusals[0].times,
    ) == ([], 1, 8)


def test_the_newest_read_of_a_file_under_edit_stays(proxy: RunningProxy) -> None:
    messages = session(3)
    messages += turn(50, "z" * 20_000, argument="/src/engine.py")
    messages += turn(51, "edited", tool="Edit", argument="/src/engine.py")
    for number in range(60, 64):
        messages += turn(number, f"{number}" * 10_000)
    prune_cold(proxy, messages)
    pruned = placeholders(proxy.provider.bodies[-1])
    assert "toolu_0" in pruned
    assert "toolu_50" not in pruned


def read_six_files(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation after a reply that called six tools at once."""
    pairs = [turn(number, f"{number} row\n" * 1_500) for number in range(50, 56)]
    calls = [block for call, _ in pairs for block in call["content"]]
    results = [block for _, result in pairs for block in result["content"]]
    return [*messages, {"role": "assistant", "content": calls}, {"role": "user", "content": results}]


def test_results_that_no_complete_reply_follows_stay_when_a_request_is_sent_again_after_a_pause(
    proxy: RunningProxy,
) -> None:
    messages = read_six_files(session(8))
    play(proxy, messages[:-2])
    proxy.provider.broken_stream = True
    with pytest.raises(httpx2.TransportError):
        play(proxy, messages, first=len(messages))
    proxy.settle()
    proxy.provider.broken_stream = False
    proxy.clock.now += 400
    play(proxy, messages, first=len(messages))
    assert placeholders(proxy.provider.bodies[-1]) == [f"toolu_{number}" for number in range(7)]


def test_results_that_no_reply_follows_leave_if_the_request_would_be_refused_otherwise(proxy: RunningProxy) -> None:
    messages = read_six_files(session(1))
    play(proxy, messages[:-2])
    proxy.provider.window = 20_000
    assert proxy.send(request_of(messages)).status_code == 200
    assert "toolu_50" in placeholders(proxy.provider.bodies[-1])


def test_pinned_outputs_and_files_are_never_pruned(proxy: RunningProxy) -> None:
    messages = session(8)
    play(proxy, messages[:-2])

    async def pin(stash: Stash) -> None:
        outputs = await stash.store.read_outputs(ID)
        await stash.configure_session(ID, pin=["/a/1", outputs[3].handle])

    in_stash(proxy.database, pin)
    proxy.clock.now += 400
    proxy.send(request_of(messages))
    stay = {"toolu_1", "toolu_3"}
    assert placeholders(proxy.provider.bodies[-1]) == [name for name in OLD if name not in stay]
    proxy.provider.window = 5_000
    proxy.send(request_of(messages))
    assert not stay & set(placeholders(proxy.provider.bodies[-1]))


MODEL = "claude-opus-5-5"


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
    """Sends requests and thinks about what the provider received, not about what it wrote. The provider refuses
    thinking behind something else."""

    def __init__(self, proxy: RunningProxy) -> None:
        self._proxy = proxy
        self.messages: list[dict[str, Any]] = []
        broken = Refusal(400, "Invalid `signature` in `thinking` block", is_broken, times=1000)
        proxy.provider.refusals.append(broken)

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
