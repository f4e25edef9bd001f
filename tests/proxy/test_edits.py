"""When the proxy prunes; what the cache and the bill see of it, and what the proxy reports of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from contextstash.messages.base import read_usage
from contextstash.request.proxied import report_of
from contextstash.stash import Stash
from contextstash.window.models import price_of
from contextstash_storage.records import ProxiedSession, Usage
from contextstash_storage.sqlite import open_sqlite
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
from tests.support.strict_provider import mismatched, reasoning_after


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
    assert proxy.state(ID).faults == 0


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_the_first_request_of_a_long_session_is_healed_too(proxy: RunningProxy, kind: str) -> None:
    too_long = "prompt is too long: 30000 tokens > 20000 maximum"
    proxy.provider.refusals.append(Refusal(400, too_long, lambda body: not placeholders(body), kind=kind))
    assert proxy.send(request_of(session(8))).status_code == 200
    assert len(proxy.provider.asked) == 2


def test_an_edited_request_that_is_too_long_and_cannot_be_healed_is_sent_once(
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    monkeypatch.setattr("contextstash.proxy.engine.HEAL_SECONDS", 0.0)
    proxy.provider.window = 5_000
    sent = len(proxy.provider.asked)
    assert proxy.send(request_of([*messages, *turn(8, "more")])).status_code == 400
    assert len(proxy.provider.asked) == sent + 1


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


def test_a_request_that_is_refused_without_edits_too_ends_no_edits(proxy: RunningProxy) -> None:
    messages = session(8)
    prune_cold(proxy, messages)
    pruned = placeholders(proxy.provider.bodies[-1])
    proxy.provider.refusals.append(Refusal(400, "image exceeds 5 MB maximum", lambda body: True, times=2))
    picture = {"role": "user", "content": "A picture that is too large."}
    assert proxy.send(request_of([*messages, picture])).status_code == 400
    assert proxy.send(request_of([*messages, *turn(8, "more")])).status_code == 200
    assert placeholders(proxy.provider.bodies[-1]) == pruned
    assert proxy.state(ID).left_alone is None


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


class Agent:
    """Sends requests and thinks about what the provider received, not about what it wrote. The provider refuses
    thinking behind something else."""

    def __init__(self, proxy: RunningProxy) -> None:
        self.proxy = proxy
        self.messages: list[dict[str, Any]] = []
        message = "Invalid `signature` in `thinking` block"
        broken = Refusal(400, message, lambda body: mismatched("anthropic", body) > 0, times=1000)
        proxy.provider.refusals.append(broken)

    def say(self, *messages: dict[str, Any]) -> None:
        self.messages += messages
        self.proxy.clock.now += 10
        response = self.proxy.send(request_of(self.messages, model=MODEL))
        assert response.status_code == 200, response.text

    def reply(self, content: dict[str, Any]) -> None:
        thinking = reasoning_after("anthropic", self.proxy.provider.bodies[-1], len(self.messages))
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


def test_a_prune_by_a_tool_waits_until_the_client_compacts_also_if_another_proxy_goes_on(proxy: RunningProxy) -> None:
    agent = Agent(proxy)
    agent.say({"role": "user", "content": "Fix the bug."})
    agent.work(0, 8)
    agent.reply({"type": "text", "text": "Fixed."})
    agent.say({"role": "user", "content": "Now the next one."})
    pruned = in_stash(proxy.database, lambda stash: stash.prune_tool_outputs(ID, keep_last=6))
    agent.work(8, 1)
    with running_proxy(proxy.provider, proxy.database, proxy.clock) as agent.proxy:
        agent.work(9, 2)
        assert len(pruned.archived) == 2
        assert placeholders(proxy.provider.bodies[-1]) == []
        agent.reply({"type": "text", "text": "Fixed, too."})
        agent.messages = [each for each in agent.messages if each["role"] == "user"][:1] + session(2)[1:]
        proxy.clock.now += 400
        agent.say({"role": "assistant", "content": "Compacted."}, {"role": "user", "content": "And the last one."})
    assert proxy.provider.refusals[0].times == 1000


PRICED = "claude-sonnet-4-5"
"""Its price doubles for prompts above 200,000 tokens."""


SYSTEM = [{"type": "text", "text": "You are an agent. " * 1_500, "cache_control": {"type": "ephemeral"}}]


class Bill:
    """Sends requests through the proxy, and counts what the same ones would have taken directly."""

    def __init__(self, proxy: RunningProxy) -> None:
        self.proxy, self.provider, self.clock = proxy, proxy.provider, proxy.clock
        self.direct = CachingProvider(clock=proxy.clock)
        self.tokens = 0
        self.dollars = 0.0

    def play(self, messages: list[dict[str, Any]], first: int = 1, seconds: float = 10, system: Any = SYSTEM) -> None:
        """Send the requests of a conversation."""
        for count in range(first, len(messages) + 1, 2):
            self.clock.now += seconds
            body = request_of(messages[:count], model=PRICED, system=system)
            usage = read_usage(self.direct.split(body, self.direct.count(body, 0)))
            assert usage is not None
            self.tokens += usage.prompt_tokens
            self.dollars += price_of(PRICED, usage) or 0.0
            self.proxy.send(body)

    @property
    def paid(self) -> float:
        """What the provider billed, in US dollars."""
        pairs = zip(self.provider.bodies, self.provider.usage, strict=True)
        usages = [read_usage(self.provider.split(body, usage)) for body, usage in pairs]
        return sum(price_of(PRICED, usage) or 0.0 for usage in usages if usage is not None)

    @property
    def state(self) -> ProxiedSession:
        return self.proxy.state(ID)


@pytest.fixture
def bill(proxy: RunningProxy) -> Bill:
    return Bill(proxy)


def test_the_report_is_within_a_percent_of_what_the_provider_billed_and_would_have_billed(bill: Bill) -> None:
    messages = session(50)
    bill.play(messages[:71])
    bill.clock.now += 400
    bill.play(messages, first=73)
    state = bill.state
    assert state.edited
    assert state.sent == sum(sum(usage.values()) - usage["output_tokens"] for usage in bill.provider.usage)
    assert state.dollars_paid == pytest.approx(bill.paid, rel=1e-6)
    assert state.direct == pytest.approx(bill.tokens, rel=0.01)
    assert state.dollars_direct == pytest.approx(bill.dollars, rel=0.01)
    saved = report_of(state).dollars_saved
    assert saved == pytest.approx(bill.dollars - bill.paid, rel=0.05)


def test_a_cache_that_is_kept_for_an_hour_is_billed_as_such_and_would_have_been(bill: Bill) -> None:
    long = [{**SYSTEM[0], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    messages = session(30)
    for count in range(1, len(messages) + 1, 2):
        bill.play(messages[:count], first=count, seconds=3_700 if count == 41 else 10, system=long)
    assert bill.state.edited
    assert bill.state.dollars_paid == pytest.approx(bill.paid, rel=1e-6)
    assert bill.state.dollars_direct == pytest.approx(bill.dollars, rel=0.01)


def test_a_request_that_only_fetched_an_output_is_charged_in_full_and_what_it_fetched_stays_charged(bill: Bill) -> None:
    messages = session(30)
    bill.play(messages[:25])
    bill.clock.now += 400
    bill.play(messages[:27], first=27)
    before = bill.state
    assert before.edited
    fetched = [*messages[:27], *turn(90, "the old output\n" * 500, tool="mcp__contextstash__get_archived_output")]
    bill.play(fetched, first=29)
    after = bill.state
    assert after.direct == before.direct
    assert after.dollars_direct == before.dollars_direct
    assert after.sent > before.sent
    bill.play([*fetched, *messages[27:29]], first=31)
    assert bill.state.direct - after.direct < bill.state.direct_prompt - 1_000


def test_a_compaction_by_the_api_within_a_request_is_billed(proxy: RunningProxy) -> None:
    counts = {"input_tokens": 2_000, "output_tokens": 50}
    compaction = {"type": "compaction", "input_tokens": 150_000, "output_tokens": 900}
    usage = {**counts, "iterations": [compaction, {"type": "message", **counts}]}
    proxy.provider.raw_answer = 200, "application/json", json.dumps({"type": "message", "usage": usage}).encode()
    proxy.send(request_of(session(2), model=PRICED, stream=False))
    state = proxy.state(ID)
    whole = [Usage(prompt_tokens=2_000, completion_tokens=50), Usage(prompt_tokens=150_000, completion_tokens=900)]
    assert state.sent == 152_000
    assert 151_900 < state.direct < 152_000  # without the tool of contextstash
    assert state.dollars_paid == pytest.approx(sum(price_of(PRICED, each) or 0.0 for each in whole))


def test_the_totals_of_each_day_are_kept_apart(bill: Bill) -> None:
    messages = session(12)
    bill.play(messages[:11])
    first = bill.state
    bill.clock.now += 86_400
    bill.play(messages, first=13)
    days = sorted(bill.state.days)
    assert len(days) == 2
    assert bill.state.days[days[1]].dollars_paid == first.dollars_paid


def test_no_unedited_request_is_counted_above_the_models_window(proxy: RunningProxy) -> None:
    messages = session(30, size=60_000)
    for count in range(1, len(messages) + 1, 2):
        proxy.clock.now += 400
        proxy.send(request_of(messages[:count], model=PRICED))
    state = proxy.state(ID)
    assert state.direct_prompt == 200_000
    assert state.direct <= 200_000 * state.requests


async def test_the_receipt_counts_what_a_proxied_session_saved_once(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "stash.db")
    stash = Stash(store)
    natives = [message for each in range(8) for message in turn(each, "log line\n" * 2_000)]
    await stash.record_messages(natives, session_id="s", model=PRICED)
    pruned = await stash.prune_tool_outputs("s", keep_last=2)
    await stash.record_messages(turn(9, "x"), session_id="s", usage={"input_tokens": 5_000, "output_tokens": 1})
    assert (await stash.receipt()).tokens_without > 5_000
    await stash.store.put_note(
        "s", ProxiedSession(requests=9, sent=1_000, direct=1_000 + pruned.tokens_saved, priced=9, dollars_direct=2.0)
    )
    found = await stash.receipt()
    assert found.tokens_without - found.tokens_billed == pruned.tokens_saved
    assert found.dollars_saved == 2.0
    await stash.close()
