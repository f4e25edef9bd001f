"""Receipt, calls and costs, held against the list prices by hand; what smaller windows would have cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from contextstash.stash import Stash
from tests.support.stashes import SESSION, reply, round_of, stash_at, user

MODEL = "claude-opus-4-5"

READ, WRITE, LONG_WRITE, INPUT, OUTPUT = 0.5e-6, 6.25e-6, 10e-6, 5e-6, 25e-6
"""US dollars for a token of that model: Anthropic's price list."""


def usage_of(number: int) -> dict[str, Any]:
    """What Claude Code's transcripts report: most of what is written to the cache is kept for an hour."""
    written, long = (20_000, 20_000) if not number else (1_000, 900)
    return {
        "input_tokens": 3,
        "cache_read_input_tokens": 20_000 + 1_000 * (number - 1) if number else 0,
        "cache_creation_input_tokens": written,
        "cache_creation": {"ephemeral_5m_input_tokens": written - long, "ephemeral_1h_input_tokens": long},
        "output_tokens": 100,
    }


def price_by_hand(usage: dict[str, Any]) -> float:
    split = usage["cache_creation"]
    dollars: float = (
        usage["input_tokens"] * INPUT
        + usage["cache_read_input_tokens"] * READ
        + split["ephemeral_5m_input_tokens"] * WRITE
        + split["ephemeral_1h_input_tokens"] * LONG_WRITE
        + usage["output_tokens"] * OUTPUT
    )
    return dollars


async def record_calls(stash: Stash, session_id: str, usages: list[dict[str, Any]], model: str = MODEL) -> None:
    """Record a session of a reply for each of these reports."""
    for number, usage in enumerate(usages):
        await stash.record_messages(
            [user(10), reply(10)], session_id=session_id, first_seq=2 * number, model=model, usage=usage
        )


async def test_what_the_cache_keeps_for_an_hour_is_priced_so(stash: Stash) -> None:
    usages = [usage_of(number) for number in range(40)]
    await record_calls(stash, SESSION, usages)
    receipt = await stash.receipt()
    by_hand = sum(map(price_by_hand, usages))
    assert receipt.dollars_billed == pytest.approx(by_hand, rel=0.001)
    assert receipt.dollars_without == pytest.approx(by_hand, rel=0.001)


async def test_what_was_taken_from_the_view_counts_once_for_each_request_after_it(tmp_path: Path) -> None:
    natives = [message for number in range(8) for message in round_of(number, "log line\n" * 2_000)]
    usage = {"input_tokens": 5_000, "output_tokens": 10}
    async with stash_at(tmp_path / "s.db", window=200_000, estimator="chars") as stash:
        await stash.record_messages(natives, whole=True, session_id=SESSION, model=MODEL, usage=usage)
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=2)
        before = await stash.receipt()
        assert before.tokens_without == before.tokens_billed
        for _ in range(3):
            natives += [user(40), reply(40)]
            await stash.record_messages(natives, whole=True, session_id=SESSION, usage=usage)
        after = await stash.receipt()
        assert after.tokens_without - after.tokens_billed == 3 * pruned.tokens_saved
        assert after.dollars_saved == pytest.approx(3 * pruned.tokens_saved * READ, rel=0.01)


SONNET = "claude-sonnet-4-5"
GROWTH = 2_000


def growing(calls: int) -> list[dict[str, Any]]:
    """What the provider would report of requests that grow evenly."""
    return [
        {
            "input_tokens": 1,
            "cache_read_input_tokens": 20_000 + GROWTH * (number - 1) if number else 0,
            "cache_creation_input_tokens": GROWTH if number else 20_000,
            "output_tokens": 100,
        }
        for number in range(calls)
    ]


async def test_a_long_session_would_have_cost_less_in_a_smaller_window(stash: Stash) -> None:
    await record_calls(stash, "long", growing(90), SONNET)
    advice = await stash.advise()
    assert (advice.conversations, advice.left_out, advice.requests) == (1, 0, 90)
    assert all(window.dollars < advice.dollars for window in advice.windows)
    assert all(window.cost_percent < 100 for window in advice.windows)
    lacking = [window.lacking_percent for window in advice.windows]
    assert lacking == sorted(lacking, key=lambda share: -share), "a smaller window holds less"


async def test_sessions_that_teach_nothing_are_left_out_and_counted(stash: Stash) -> None:
    await record_calls(stash, "short", growing(5), SONNET)
    await record_calls(stash, "unpriced", growing(40), "a-model-of-my-own")
    advice = await stash.advise()
    assert (advice.conversations, advice.left_out, advice.dollars) == (0, 2, 0)
