"""The budget of a window, its levels, and when another compaction is worth it."""

from __future__ import annotations

import pytest

from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import (
    budget_of,
    level_of,
    next_step,
    percent_of,
    worth_trying,
)
from contextstash_storage.records import Event


def test_numbers_that_are_not_set_follow_from_the_window() -> None:
    budget = budget_of(ContextSettings(), 200_000)
    assert (budget.usable, budget.prune_protect_tokens, budget.prune_minimum_tokens) == (175_000, 40_000, 17_500)
    small = budget_of(ContextSettings(), 8_000)
    assert (small.usable, small.prune_protect_tokens) == (7_000, 1_750)
    assert (small.low_water, small.summary_tokens, small.compact_keep_tokens) == (3_010, 1_000, 2_010)
    assert budget.summary_tokens == 8_000


def test_sizes_follow_from_what_system_prompt_and_tools_leave_of_the_window() -> None:
    alone = budget_of(ContextSettings(output_reserve=0), 64_000)
    beside = budget_of(ContextSettings(output_reserve=0), 64_000, fixed=32_000)
    assert (alone.free, beside.free) == (64_000, 32_000)
    assert (alone.summary_tokens, beside.summary_tokens) == (8_000, 4_000)
    assert beside.low_water == alone.low_water
    assert budget_of(ContextSettings(output_reserve=0), 64_000, fixed=70_000).free == 16_000


def test_the_share_of_the_usable_window_is_in_percent_with_one_digit() -> None:
    assert percent_of(701, budget_of(ContextSettings(output_reserve=0), 1_000)) == 70.1


@pytest.mark.parametrize("level", ["prune", "compact", "critical", "overflow"])
def test_each_level_says_what_to_do(level: str) -> None:
    budget = budget_of(ContextSettings(output_reserve=0), 1_000)
    found = {level_of(tokens, budget): next_step(level_of(tokens, budget)) for tokens in range(0, 1_100, 10)}
    assert "Call " in found[level] or "call " in found[level]  # type: ignore[index]
    assert "compact" in next_step(level, followed=True)  # type: ignore[arg-type]


USABLE = 100_000


def event(seq: int, before: int = 1, after: int = 1) -> Event:
    return Event.model_validate(
        {"kind": "compaction", "tokens_before": before, "tokens_after": after, "reason": "", "seq": seq}
    )


POOR, GOOD, OVER = event(100, 82_000, 79_000), event(200, 82_000, 30_000), event(100, 100_500, 99_500)


@pytest.mark.parametrize(
    ("last", "tokens", "messages", "worth"),
    [
        (None, 82_000, 10, True),
        (GOOD, 30_100, 201, True),
        (POOR, 88_999, 1_000, False),
        (POOR, 89_000, 1_000, True),
        (POOR, 90_000, 100, False),
        (OVER, 100_400, 109, False),
        (OVER, 100_400, 110, True),
    ],
    ids=[
        "the first attempt", "one after a good one", "after a poor one before the context grew by a tenth",
        "once it has", "without a new message", "over the usable window", "over it, ten messages later",
    ],
)  # fmt: skip
def test_when_another_attempt_is_worth_it(last: Event | None, tokens: int, messages: int, worth: bool) -> None:
    assert worth_trying(last, tokens, messages, USABLE) is worth
