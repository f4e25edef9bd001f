"""What the proxy reports of a run, beside what the provider billed and what it would have billed unedited."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.messages.base import read_usage
from contextstash.request.proxied import report_of
from contextstash.stash import Stash
from contextstash.window.models import price_of
from contextstash_storage.records import ProxiedSession
from contextstash_storage.sqlite import open_sqlite
from tests.support.proxies import ID, CachingProvider, RunningProxy, request_of, session, turn

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


async def test_the_receipt_counts_what_a_proxied_session_saved_once(tmp_path: Path) -> None:
    store = await open_sqlite(tmp_path / "stash.db")
    stash = Stash(store)
    natives = [message for each in range(8) for message in turn(each, "log line\n" * 2_000)]
    await stash.record_messages(natives, session_id="s", model=MODEL)
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
