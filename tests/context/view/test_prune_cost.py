"""The cost rule: a prune must be earned back, unless the cache is cold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.context.view.outputs_in_use import MadeCall, protected_calls
from contextstash.context.view.prune_cost import (
    FIVE_MINUTES,
    ONE_HOUR,
    CacheState,
    Prunable,
    affordable,
    is_cold,
    plan_cached_prune,
)
from tests.support.effort import examples

NEAR, NEAR_HOUR = (replace(prices, look_back=None) for prices in (FIVE_MINUTES, ONE_HOUR))
"""The cache of a provider that finds any common start."""


def results(*sizes: int, start: int = 10_000, gap: int = 1_000, carried: int = 20) -> list[Prunable]:
    """Results one after another, with other tokens between them, each carried by so many requests."""
    found, before = [], start
    for number, size in enumerate(sizes):
        found.append(Prunable(str(number), before, size, 70, carried=carried))
        before += size + gap
    return found


def test_a_cold_cache_takes_all_and_too_little_is_left() -> None:
    state = CacheState(cold=True, cached=50_000, turns=1, prices=NEAR)
    assert len(plan_cached_prune(results(2_000, 2_000), state).chosen) == 2
    assert plan_cached_prune(results(2_000), state).chosen == ()


def test_a_warm_cache_is_broken_only_for_what_the_likely_turns_earn_back() -> None:
    many = results(*[5_000] * 10)
    assert plan_cached_prune(many, CacheState(cold=False, cached=90_000, turns=3, prices=NEAR)).chosen == ()
    assert len(plan_cached_prune(many, CacheState(cold=False, cached=90_000, turns=30, prices=NEAR)).chosen) == 10
    assert plan_cached_prune(many, CacheState(cold=False, cached=400_000, turns=30, prices=NEAR_HOUR)).chosen == ()


def test_a_batch_is_pruned_as_soon_as_carrying_it_has_cost_what_pruning_it_does() -> None:
    """49,300 tokens cost 4,930 with each request, and to write the 30,700 behind them again 35,305, or 58,330."""
    for prices, carried in ((NEAR, 7), (NEAR_HOUR, 11)):
        state = CacheState(cold=False, cached=90_000, turns=50, prices=prices)
        assert plan_cached_prune(results(*[5_000] * 10, carried=carried - 1), state).chosen == ()
        assert len(plan_cached_prune(results(*[5_000] * 10, carried=carried), state).chosen) == 10


def test_an_output_that_costs_more_to_carry_once_than_to_prune_leaves_at_once() -> None:
    large = results(25_000, start=60_000, carried=0)
    assert plan_cached_prune(large, CacheState(cold=False, cached=86_000, turns=10, prices=NEAR)).chosen == tuple(large)
    assert plan_cached_prune(large, CacheState(cold=False, cached=96_000, turns=10, prices=NEAR)).chosen == ()


def test_a_prune_risks_what_was_saved_and_hardly_more() -> None:
    large = results(25_000, start=60_000)
    state = CacheState(cold=False, cached=90_000, turns=50, prices=NEAR)
    price = 5_070 * 1.15
    for paid, unedited, pays in ((100_000, 100_000, False), (300_000, 300_000, True), (91_000, 97_000, True)):
        assert (affordable(paid, unedited) >= price) is pays
        plan = plan_cached_prune(large, replace(state, affordable=affordable(paid, unedited)))
        assert bool(plan.chosen) is pays
    cold = replace(state, cold=True, affordable=affordable(2.0, 1.0))
    assert plan_cached_prune(large, cold).chosen, "a prune of a cold cache costs nothing"


def test_an_early_small_result_does_not_make_everything_after_it_be_written_again() -> None:
    far = [Prunable("far", 1_000, 300, 70, carried=20), *results(*[10_000] * 5, start=300_000)]
    chosen = plan_cached_prune(far, CacheState(cold=False, cached=360_000, turns=20, prices=NEAR)).chosen
    assert [each.key for each in chosen] == ["0", "1", "2", "3", "4"]


def test_only_what_is_in_front_of_the_end_of_an_earlier_request_stays_cached() -> None:
    large = results(*[6_000] * 4, start=90_000, gap=0)
    state = CacheState(cold=False, cached=120_000, turns=12, anchors=(5_000, 89_500, 96_000))
    assert len(plan_cached_prune(large, state).chosen) == 4
    assert plan_cached_prune(large, replace(state, anchors=(5_000,))).chosen == ()
    assert plan_cached_prune(large, replace(state, anchors=())).chosen == ()


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.integers(0, 30_000), max_size=12), st.integers(0, 200_000), st.integers(0, 100))
def test_a_warm_prune_always_saves_more_than_it_costs_within_the_turns_there_were(
    sizes: list[int], cached: int, turns: int
) -> None:
    chosen = plan_cached_prune(results(*sizes), CacheState(cold=False, cached=cached, turns=turns, prices=NEAR)).chosen
    if chosen:
        saved = sum(each.saved for each in chosen)
        rewritten = max(0, cached - chosen[0].before - saved)
        assert turns * FIVE_MINUTES.read * saved > rewritten * (FIVE_MINUTES.write - FIVE_MINUTES.read)


def test_cold_is_a_matter_of_time() -> None:
    assert not is_cold(310.0, 0.0, 300)
    assert is_cold(316.0, 0.0, 300)
    assert not is_cold(1_000.0, 0.0, 3_600)


def test_the_newest_read_of_a_file_under_edit_and_own_retrievals_stay() -> None:
    calls = [
        MadeCall("old", "Read", "/src/a.py", 1.0),
        MadeCall("new", "Read", "/src/a.py", 2.0),
        MadeCall("other", "Read", "/src/b.py", 2.0),
        MadeCall("own", "mcp__contextstash__get_archived_output", "out_a", 2.0),
        MadeCall("edit", "Edit", "/src/a.py", 3.0),
    ]
    assert protected_calls(calls) == {"new", "own"}


def test_of_what_was_fetched_again_only_the_newest_output_stays() -> None:
    calls = [
        MadeCall(name, "Read", "/src/a.py", at) for name, at in (("first", 1.0), ("second", 15.0), ("third", 25.0))
    ]
    assert protected_calls(calls, {"second": "first", "third": "first"}) == {"third"}
