"""The budget of a window, its levels, whether it is too small, and when another compaction is worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import (
    budget_of,
    level_of,
    next_step,
    percent_of,
    rapid_compactions,
    refill_advice,
    worth_trying,
)
from contextstash_storage.records import Event
from tests.support.turns import laws


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


def event(seq: int, before: int = 1, after: int = 1, kind: str = "compaction") -> Event:
    return Event.model_validate(
        {"kind": kind, "tokens_before": before, "tokens_after": after, "reason": "", "seq": seq}
    )


def test_compactions_within_a_few_messages_are_counted() -> None:
    assert rapid_compactions([10, 14, 80, 86, 200]) == 2
    assert rapid_compactions([10, 60, 120]) == 0
    assert rapid_compactions([]) == 0


def test_one_large_output_is_no_reason_to_advise_a_larger_window() -> None:
    assert refill_advice(1, 60_000) is None
    assert "--window 90k" in str(refill_advice(2, 60_000))


POOR, GOOD, MIDDLING = event(100, 82_000, 79_000), event(200, 82_000, 30_000), event(300, 82_000, 74_000)


def test_the_first_attempt_and_one_after_a_good_one_are_worth_it() -> None:
    assert worth_trying([], 82_000, 10, USABLE)
    assert worth_trying([GOOD], 30_100, 201, USABLE)
    assert worth_trying([POOR, POOR, GOOD], 30_100, 201, USABLE)
    assert worth_trying([MIDDLING], 74_100, 301, USABLE)


@pytest.mark.parametrize(("poor", "share"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 40), (12, 40)])
def test_after_poor_ones_the_context_must_grow_first_by_twice_as_much_each_time(poor: int, share: int) -> None:
    attempts = [event(100 + 20 * place, 21_000, 20_000) for place in range(poor)]
    enough = 20_000 + share * USABLE // 100
    assert not worth_trying(attempts, enough - 1, 1_000, USABLE)
    assert worth_trying(attempts, enough, 1_000, USABLE)


def test_a_middling_one_leaves_the_wait_as_it_is() -> None:
    assert not worth_trying([POOR, MIDDLING], 78_999, 310, USABLE)
    assert worth_trying([POOR, MIDDLING], 79_000, 310, USABLE)


def test_without_a_new_message_another_attempt_is_not_worth_it() -> None:
    assert not worth_trying([POOR], 90_000, 100, USABLE)


def test_a_context_over_the_usable_window_waits_at_most_ten_messages() -> None:
    attempts = [event(100, 100_500, 99_500)] * 4
    assert not worth_trying(attempts, 100_400, 109, USABLE)
    assert worth_trying(attempts, 100_400, 110, USABLE)


drawn = st.lists(
    st.builds(event, st.integers(0, 500), st.integers(0, 120_000), st.integers(0, 120_000)), max_size=12
).map(lambda attempts: sorted(attempts, key=lambda attempt: attempt.seq))


@laws
@given(drawn, st.integers(0, USABLE), st.integers(0, USABLE))
def test_an_attempt_that_is_worth_it_stays_so_as_the_context_grows(
    attempts: list[Event], tokens: int, more: int
) -> None:
    if worth_trying(attempts, tokens, 700, USABLE):
        assert worth_trying(attempts, tokens + more, 700, USABLE)


@laws
@given(drawn)
def test_growth_by_two_fifths_of_usable_is_always_enough(attempts: list[Event]) -> None:
    last = attempts[-1].tokens_after if attempts else 0
    assert worth_trying(attempts, last + 40_000, 700, USABLE)
