"""Repeated compactions: when an oscillation is reported, when it ends, and when another attempt is worth it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contextstash.window.backoff import ReductionAttempt, oscillation, worth_trying
from tests.support.turns import laws

USABLE = 100_000
THRESHOLD = 80_000


def at(seq: int, after: int, before: int = 80_500) -> ReductionAttempt:
    return ReductionAttempt(seq, before, after)


def report(*attempts: ReductionAttempt) -> str | None:
    return oscillation(attempts, THRESHOLD, USABLE)


def test_three_attempts_that_end_close_below_the_threshold_are_an_oscillation() -> None:
    close = [at(100, 78_000), at(140, 77_000), at(180, 76_000)]
    assert report(*close[:2]) is None
    assert report(*close) == (
        "The context oscillates near its threshold of 80,000 tokens: 3 reductions within 80 messages freed 3,500 tokens"
        " each on average, and 76,000 tokens are left. These can hardly be reduced further: keep fewer recent messages,"
        " offer fewer tools, shorten the system prompt, use a model with a larger window, or start a new session with"
        " the summary."
    )


def test_three_refills_within_few_messages_each_are_an_oscillation_however_much_was_freed() -> None:
    refilled = [at(100, 30_000), at(108, 30_000), at(116, 30_000), at(124, 30_000)]
    assert report(*refilled[:3]) is None
    assert "fills again at once. Large outputs or files are the likely cause" in str(report(*refilled))


@pytest.mark.parametrize(("gap", "oscillates"), [(10, True), (11, False)])
def test_few_messages_are_ten(gap: int, oscillates: bool) -> None:
    assert bool(report(*(at(100 + gap * place, 30_000) for place in range(4)))) is oscillates


@pytest.mark.parametrize(("after", "oscillates"), [(75_001, True), (75_000, False)])
def test_close_is_less_than_a_twentieth_of_usable_below_the_threshold(after: int, oscillates: bool) -> None:
    assert bool(report(*(at(100 * place, after) for place in range(3)))) is oscillates


def test_compactions_that_last_are_no_oscillation() -> None:
    assert report(*(at(100 * place, 30_000) for place in range(9))) is None


def test_prunes_that_a_count_triggers_far_below_the_threshold_are_no_oscillation() -> None:
    assert report(*(at(2 * place, 20_000, before=20_500) for place in range(30))) is None


def test_a_prune_and_the_compaction_after_it_are_one_attempt() -> None:
    both = [attempt for seq in (100, 200, 300) for attempt in (at(seq, 79_000), at(seq, 30_000, before=79_000))]
    assert report(*both) is None


def test_an_oscillation_ends_with_an_attempt_that_clearly_frees_tokens_and_not_before() -> None:
    close = [at(100, 78_000), at(140, 77_000), at(180, 76_000)]
    assert report(*close, at(220, 74_000)) is not None
    assert report(*close, at(220, 70_000)) is None
    assert report(*close, at(220, 70_000), at(260, 78_000)) is None


def test_middling_attempts_do_not_start_an_oscillation() -> None:
    assert report(at(100, 78_000), at(140, 74_000), at(180, 78_000), at(220, 78_000)) is None


POOR = at(100, 79_000, before=82_000)
GOOD = at(200, 30_000, before=82_000)
MIDDLING = at(300, 74_000, before=82_000)


def test_the_first_attempt_and_one_after_a_good_one_are_worth_it() -> None:
    assert worth_trying([], 82_000, 10, USABLE)
    assert worth_trying([GOOD], 30_100, 201, USABLE)
    assert worth_trying([POOR, POOR, GOOD], 30_100, 201, USABLE)
    assert worth_trying([MIDDLING], 74_100, 301, USABLE)


@pytest.mark.parametrize(("poor", "share"), [(1, 5), (2, 10), (3, 20), (4, 40), (5, 40), (12, 40)])
def test_after_poor_ones_the_context_must_grow_first_by_twice_as_much_each_time(poor: int, share: int) -> None:
    attempts = [at(100 + 20 * place, 20_000, before=21_000) for place in range(poor)]
    enough = 20_000 + share * USABLE // 100
    assert not worth_trying(attempts, enough - 1, 1_000, USABLE)
    assert worth_trying(attempts, enough, 1_000, USABLE)


def test_a_middling_one_leaves_the_wait_as_it_is() -> None:
    assert not worth_trying([POOR, MIDDLING], 78_999, 310, USABLE)
    assert worth_trying([POOR, MIDDLING], 79_000, 310, USABLE)


def test_without_a_new_message_another_attempt_is_not_worth_it() -> None:
    assert not worth_trying([POOR], 90_000, 100, USABLE)


def test_a_context_over_the_usable_window_waits_at_most_ten_messages() -> None:
    attempts = [at(100, 99_500, before=100_500)] * 4
    assert not worth_trying(attempts, 100_400, 109, USABLE)
    assert worth_trying(attempts, 100_400, 110, USABLE)


drawn = st.lists(
    st.builds(ReductionAttempt, st.integers(0, 500), st.integers(0, 120_000), st.integers(0, 120_000)), max_size=12
).map(lambda attempts: sorted(attempts, key=lambda attempt: attempt.seq))


@laws
@given(drawn)
def test_after_an_attempt_that_clearly_frees_tokens_nothing_oscillates(attempts: list[ReductionAttempt]) -> None:
    assert report(*attempts, at(600, 60_000)) is None


@laws
@given(drawn, st.integers(0, USABLE), st.integers(0, USABLE))
def test_an_attempt_that_is_worth_it_stays_so_as_the_context_grows(
    attempts: list[ReductionAttempt], tokens: int, more: int
) -> None:
    if worth_trying(attempts, tokens, 700, USABLE):
        assert worth_trying(attempts, tokens + more, 700, USABLE)


@laws
@given(drawn)
def test_growth_by_two_fifths_of_usable_is_always_enough(attempts: list[ReductionAttempt]) -> None:
    last = attempts[-1].tokens_after if attempts else 0
    assert worth_trying(attempts, last + 40_000, 700, USABLE)
