"""What the proxy reports of a run, beside what the provider billed and what it would have billed unedited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.configuration.windows_and_prices import price_of
from contextstash.messages.usage import read_usage
from contextstash.queries.receipt import report_of, state_since
from contextstash.stash import Stash
from contextstash_storage.records import ProxiedSession
from contextstash_storage.sqlite.store import open_sqlite
from tests.support.caching_provider import CHARACTERS_PER_TOKEN, CachingProvider
from tests.support.proxies import ID, Clock, RunningProxy, play, prune_cold, request_of, running_proxy, session, turn

MODEL = "claude-sonnet-4-5"
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
    assert state.prunes
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
    assert after.sent > before.sent
    bill.play([*fetched, *messages[27:29]], first=31)
    assert bill.state.direct - after.direct < bill.state.direct_prompt - 1_000


def test_the_first_request_of_a_small_session_costs_what_it_would_have_cost(bill: Bill) -> None:
    """Less than the smallest prefix that a provider keeps: that nothing of it was read is no effect of an edit."""
    bill.proxy.send(request_of([{"role": "user", "content": "Fix the tests"}], model=MODEL))
    assert 0 < bill.state.dollars_direct < bill.state.dollars_paid, "our own tool stands in it"


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
        proxy.send(request_of(messages[:count], model=MODEL))
    state = proxy.state(ID)
    assert state.direct_prompt == 200_000
    assert state.direct <= 200_000 * state.requests


def test_a_resumed_session_has_dollars_too(provider: CachingProvider, clock: Clock, tmp_path: Path) -> None:
    messages = session(12)
    with running_proxy(provider, tmp_path / "stash.db", clock) as first:
        prune_cold(first, messages[:17], model=MODEL)
        before = first.state(ID)
    with running_proxy(provider, tmp_path / "stash.db", clock) as second:
        play(second, messages, first=19, model=MODEL)
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
    proxy: RunningProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider counts 30,000 tokens that the body does not show; a byte of the texts takes as many as ever."""
    counted = CachingProvider.count
    monkeypatch.setattr(CachingProvider, "count", lambda self, body, hidden: counted(self, body, hidden + 30_000))
    play(proxy, session(12))
    rate = proxy.state(ID).tokens_per_byte
    assert rate == pytest.approx(1 / CHARACTERS_PER_TOKEN, rel=0.1)
