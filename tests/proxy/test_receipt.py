"""What the proxy reports of a run, beside what the provider billed and what it would have billed unedited."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from contextstash.configuration.windows_and_prices import price_of
from contextstash.messages.usage import read_usage
from contextstash.queries.receipt import report_of, state_since
from contextstash.stash import Stash
from contextstash_storage.records import Event, ProxiedSession, Usage
from contextstash_storage.sqlite.store import open_sqlite
from tests.support import caching_provider
from tests.support.caching_provider import CHARACTERS_PER_TOKEN, CachingProvider
from tests.support.proxies import ID, Clock, RunningProxy, play, prune_cold, request_of, running_proxy, session, turn

MODEL = "claude-sonnet-4-5"
"""Its price doubles for prompts above 200,000 tokens."""


SYSTEM = [{"type": "text", "text": "You are an agent. " * 1_500, "cache_control": {"type": "ephemeral"}}]


class Bill:
    """Sends requests through the proxy, and counts what the same ones would have taken directly."""

    def __init__(self, proxy: RunningProxy, provider: CachingProvider, clock: Clock) -> None:
        self.proxy, self.provider, self.clock = proxy, provider, clock
        self.direct = CachingProvider(clock=clock)
        self.tokens = 0
        self.dollars = 0.0

    def play(self, messages: list[dict[str, Any]], first: int = 1, seconds: float = 10, system: Any = SYSTEM) -> None:
        """Send the requests of a conversation."""
        for count in range(first, len(messages) + 1, 2):
            self.clock.now += seconds
            body = request_of(messages[:count], model=MODEL, system=system)
            usage = read_usage(self.direct.split(body, self.direct.count(body, 0)))
            assert usage is not None
            self.tokens += usage.prompt_tokens
            self.dollars += price_of(MODEL, usage) or 0.0
            self.proxy.send(body)

    @property
    def paid(self) -> float:
        """What the provider billed, in US dollars."""
        pairs = zip(self.provider.bodies, self.provider.usage, strict=True)
        usages = [read_usage(self.provider.split(body, usage)) for body, usage in pairs]
        return sum(price_of(MODEL, usage) or 0.0 for usage in usages if usage is not None)

    def events(self) -> list[Event]:
        """The log of the session."""
        assert self.proxy.engine._access is not None
        store = self.proxy.engine._access.store
        return asyncio.run_coroutine_threadsafe(store.read_events(ID), self.proxy.loop).result(30)

    @property
    def state(self) -> ProxiedSession:
        return self.proxy.state(ID)


@pytest.fixture
def bill(proxy: RunningProxy, provider: CachingProvider, clock: Clock) -> Bill:
    return Bill(proxy, provider, clock)


def test_the_report_is_within_a_percent_of_what_the_provider_billed_and_would_have_billed(bill: Bill) -> None:
    messages = session(50)
    bill.play(messages[:71])
    bill.clock.now += 400
    bill.play(messages, first=73)
    state = bill.state
    assert state.prunes
    assert state.sent == sum(sum(usage.values()) - usage["output_tokens"] for usage in bill.provider.usage)
    assert state.dollars_paid == pytest.approx(bill.paid, rel=1e-6)
    assert state.direct == pytest.approx(bill.tokens, rel=0.01)
    assert state.dollars_direct == pytest.approx(bill.dollars, rel=0.01)
    saved = report_of(state).dollars_saved
    assert saved == pytest.approx(bill.dollars - bill.paid, rel=0.05)
    assert sum(lever.dollars for lever in state.levers.values()) == pytest.approx(saved, abs=1e-4)
    assert state.levers["tool_outputs"].dollars > 0 > state.levers["tool_definitions"].dollars


def test_a_cache_that_is_kept_for_an_hour_is_billed_as_such_and_would_have_been(bill: Bill) -> None:
    long = [{**SYSTEM[0], "cache_control": {"type": "ephemeral", "ttl": "1h"}}]
    messages = session(30)
    for count in range(1, len(messages) + 1, 2):
        bill.play(messages[:count], first=count, seconds=3_700 if count == 41 else 10, system=long)
    assert bill.state.prunes
    assert bill.state.dollars_paid == pytest.approx(bill.paid, rel=1e-6)
    assert bill.state.dollars_direct == pytest.approx(bill.dollars, rel=0.01)


def test_a_cache_that_the_provider_lost_is_not_booked_as_a_cost_of_prunes(bill: Bill) -> None:
    messages = session(30)
    bill.play(messages[:15])
    bill.clock.now += 400
    bill.play(messages[:17], first=17)
    for count in range(19, len(messages) + 1, 2):
        bill.provider.stored.clear()
        bill.direct.stored.clear()
        bill.play(messages[:count], first=count)
    state = bill.state
    assert state.dollars_paid < state.dollars_direct
    assert state.dollars_direct == pytest.approx(bill.dollars, rel=0.02)


def test_a_request_that_only_fetched_an_output_is_charged_in_full_and_what_it_fetched_stays_charged(bill: Bill) -> None:
    messages = session(30)
    bill.play(messages[:25])
    bill.clock.now += 400
    bill.play(messages[:27], first=27)
    before = bill.state
    assert before.prunes
    fetched = [*messages[:27], *turn(90, "the old output\n" * 500, tool="mcp__contextstash__get_archived_output")]
    bill.play(fetched, first=29)
    after = bill.state
    assert after.direct == before.direct
    assert after.dollars_direct == before.dollars_direct
    paid = after.dollars_paid - before.dollars_paid
    assert after.levers["retrieval_requests"].dollars == pytest.approx(-paid)
    bill.play([*fetched, *messages[27:29]], first=31)
    assert bill.state.levers["fetched_again"].tokens < -1_000


def test_the_first_request_of_a_small_session_costs_what_it_would_have_cost(bill: Bill) -> None:
    """Less than the smallest prefix that a provider keeps: that nothing of it was read is no effect of an edit."""
    bill.proxy.send(request_of([{"role": "user", "content": "Fix the tests"}], model=MODEL))
    assert bill.state.dollars_paid > 0
    assert set(bill.state.levers) == {"tool_definitions"}


def test_the_totals_of_each_day_are_kept_apart(bill: Bill) -> None:
    messages = session(12)
    bill.play(messages[:11])
    first = bill.state
    bill.clock.now += 86_400
    bill.play(messages, first=13)
    days = sorted(bill.state.days)
    assert len(days) == 2
    assert bill.state.days[days[1]].dollars_paid == first.dollars_paid


def test_no_unedited_request_is_counted_above_the_models_window(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock
) -> None:
    messages = session(30, size=60_000)
    for count in range(1, len(messages) + 1, 2):
        clock.now += 400
        proxy.send(request_of(messages[:count], model=MODEL))
    state = proxy.state(ID)
    assert state.direct_prompt == 200_000
    assert state.direct <= 200_000 * state.requests


def test_a_resumed_session_has_dollars_too(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    messages = session(12)
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as first:
        prune_cold(first, clock, messages[:17], model=MODEL)
        before = first.state(ID)
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as second:
        play(second, clock, messages, first=19, model=MODEL)
        report = report_of(state_since(second.state(ID), before))
    assert report.requests == 4
    assert report.dollars_paid
    assert report.dollars_saved is not None


async def test_the_receipt_counts_what_a_proxied_session_saved_once(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "stash.db")
    stash = Stash(store)
    natives = [message for each in range(8) for message in turn(each, "log line\n" * 2_000)]
    await stash.record_messages(natives, session_id="s", model=MODEL)
    pruned = await stash.prune_tool_outputs("s", keep_last=2)
    await stash.record_messages(turn(9, "x"), session_id="s", usage={"input_tokens": 5_000, "output_tokens": 1})
    assert (await stash.receipt()).tokens_without > 5_000
    await stash.store.put_proxied(
        "s", ProxiedSession(requests=9, sent=1_000, direct=1_000 + pruned.tokens_saved, priced=9, dollars_direct=2.0)
    )
    found = await stash.receipt()
    assert found.tokens_without - found.tokens_billed == pruned.tokens_saved
    assert found.dollars_saved == 2.0
    await stash.close()


def test_what_left_is_counted_as_texts_are_and_not_as_tools_and_images(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider counts 30,000 tokens that the body does not show; a byte of the texts takes as many as ever."""
    counted = CachingProvider.count
    monkeypatch.setattr(CachingProvider, "count", lambda self, body, hidden: counted(self, body, hidden + 30_000))
    play(proxy, clock, session(12))
    rate = proxy.state(ID).tokens_per_byte
    assert rate == pytest.approx(1 / CHARACTERS_PER_TOKEN, rel=0.1)


@pytest.mark.parametrize("every", [2, 3])
def test_replies_without_usage_do_not_make_the_others_claim_more(
    bill: Bill, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Every second or third reply is cut before its usage."""
    events, replies = caching_provider.stream_events, iter(range(1_000))

    def cut(text: str, usage: dict[str, int]) -> list[dict[str, Any]]:
        found = events(text, usage)
        if next(replies) % every == 1:
            found[0]["message"].pop("usage")
            found[4].pop("usage")
        return found

    monkeypatch.setattr(caching_provider, "stream_events", cut)
    messages, direct, paid, reported = session(40), 0.0, 0.0, 0
    for count in range(1, len(messages) + 1, 2):
        before = bill.dollars
        bill.play(messages[:count], first=count, seconds=400 if count % 10 == 9 else 10)
        if (count // 2) % every != 1:
            reported += 1
            direct += bill.dollars - before
            paid += price_of(MODEL, read_usage(bill.provider.usage[-1]) or Usage(prompt_tokens=0)) or 0.0
    state = bill.state
    assert state.edited
    assert state.priced == reported
    assert state.tokens_per_byte == pytest.approx(1 / CHARACTERS_PER_TOKEN, rel=0.1)
    assert report_of(state).dollars_saved == pytest.approx(direct - paid, rel=0.1)


def shell(number: int, command: str, text: str) -> list[dict[str, Any]]:
    """A call of Claude Code's Bash and its result."""
    messages = turn(number, text, tool="Bash")
    messages[0]["content"][0]["input"] = {"command": command}
    return messages


class Agent:
    """Works through the proxy, reads again what it misses, and counts what its work would have taken directly, without
    these reads."""

    def __init__(self, bill: Bill) -> None:
        self.bill = bill
        self.plain: list[dict[str, Any]] = [{"role": "user", "content": "Fix the bug."}]
        self.messages = list(self.plain)

    def work(self, more: list[dict[str, Any]], seconds: float = 10) -> None:
        """A step that it would have taken as well."""
        self.plain += more
        self.messages += more
        self.bill.clock.now += seconds
        usage = read_usage(self.bill.direct.count(request_of(self.plain, model=MODEL, system=SYSTEM), 0))
        assert usage is not None
        self.bill.dollars += price_of(MODEL, usage) or 0.0
        self.bill.proxy.send(request_of(self.messages, model=MODEL, system=SYSTEM))

    def read_again(self, more: list[dict[str, Any]]) -> None:
        """A step that it would not have taken."""
        self.messages += more
        self.bill.clock.now += 10
        self.bill.proxy.send(request_of(self.messages, model=MODEL, system=SYSTEM))

    @property
    def saved(self) -> float:
        """What contextstash has truly saved."""
        return self.bill.dollars - self.bill.paid


def rows(number: int) -> str:
    """The text of a file."""
    return "".join(f"def function_{number}_{line}(argument): return argument + {line}\n" for line in range(200))


WAYS = {
    "the same call": lambda n: turn(1_000 + n, rows(n), argument=f"/a/{n}"),
    "another path": lambda n: turn(1_000 + n, rows(n), argument=f"/a/./{n}"),
    "another tool": lambda n: shell(1_000 + n, f"cd /a && cat {n} # once more", rows(n)),
    "a part of it": lambda n: shell(1_000 + n, f"sed -n 50,150p /a/{n}", "\n".join(rows(n).split("\n")[49:150])),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_the_model_reads_again_by_its_own_tools_is_charged(bill: Bill, way: str) -> None:
    agent = Agent(bill)
    for number in range(25):
        agent.work(turn(number, rows(number)), seconds=400 if number % 8 == 7 else 10)
        if number % 8 == 7:
            for missed in range(number - 7, number - 4):
                agent.read_again(WAYS[way](missed))
    report = report_of(bill.state)
    assert report.refetched == 9
    assert bill.state.prunes
    assert report.dollars_saved == pytest.approx(agent.saved, abs=0.05 * bill.dollars)
    assert report.dollars_saved is not None
    assert report.dollars_saved <= agent.saved + 0.02 * bill.dollars


def test_a_file_read_again_after_it_was_edited_is_not_charged(bill: Bill) -> None:
    agent = Agent(bill)
    for number in range(10):
        agent.work(turn(number, rows(number)))
    agent.work(turn(10, rows(10)), seconds=400)
    assert bill.state.prunes
    agent.work(turn(50, "The file has been updated.", tool="Edit", argument="/a/1"))
    before = bill.state
    agent.work(shell(51, "cat /a/1", rows(1).replace("function_1_7(", "renamed(")))
    assert bill.state.refetched == 0
    assert bill.state.dollars_direct > before.dollars_direct
    assert report_of(bill.state).dollars_saved == pytest.approx(agent.saved, abs=0.03 * bill.dollars)


def test_what_was_read_again_stays_charged_after_a_restart(
    provider: CachingProvider, clock: Clock, tmp_path: Path
) -> None:
    def levers(proxy: RunningProxy, messages: list[dict[str, Any]], first: int) -> dict[str, int]:
        before = {name: lever.tokens for name, lever in proxy.state(ID).levers.items()} if first > 1 else {}
        play(proxy, clock, messages, first=first, model=MODEL)
        return {name: lever.tokens - before.get(name, 0) for name, lever in proxy.state(ID).levers.items()}

    messages = session(12)
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as first:
        prune_cold(first, clock, messages, model=MODEL)
        text = messages[2]["content"][0]["content"]
        messages += [*shell(70, "cat /a/0", text), *turn(71, "next step")]
        play(first, clock, messages, first=len(messages) - 2, model=MODEL)
        messages += turn(72, "a further step")
        charged = levers(first, messages, len(messages))["fetched_again"]
    with running_proxy(provider.url, tmp_path / "stash.db", clock) as second:
        messages += turn(73, "another step")
        assert levers(second, messages, len(messages))["fetched_again"] == pytest.approx(charged, rel=0.02)
    assert charged < -1_000
