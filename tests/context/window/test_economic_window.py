"""The largest window that costs hardly more than the cheapest one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.context.window.economic_window import GROWTH_TOKENS, MIN_KEPT, TOLERANCE, cost_of, economic_window
from contextstash.context.window.window_costs import REREAD_TOKENS, Price
from contextstash_storage.records import Usage
from tests.support.effort import examples

FIXED = 15_000


def prices(read: float = 0.1, write: float = 1.25, dearer_above: int | None = None, times: float = 5.0) -> Price:
    """A price table; requests above a size cost so many times as much."""

    def price(usage: Usage) -> float:
        plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
        cost = plain + read * usage.cached_tokens + write * usage.cache_write_tokens
        return cost * times if dearer_above is not None and usage.prompt_tokens > dearer_above else cost

    return price


def cycle(window: int) -> tuple[int, int]:
    """A loop that compacts at 80 % of its window down to 40 %."""
    return int(0.8 * window), int(0.4 * window)


def stepwise(top: int, bottom: int, price: Price) -> float:
    """The cost of a new token, request by request, over many cycles."""
    size, cost, taken_in = max(bottom, FIXED + MIN_KEPT), 0.0, 0
    start = size
    for _ in range(20_000):
        if size + GROWTH_TOKENS > top:
            size, taken_in = start, taken_in - REREAD_TOKENS
            cost += price(Usage(prompt_tokens=size, cached_tokens=FIXED, cache_write_tokens=size - FIXED))
        size, taken_in = size + GROWTH_TOKENS, taken_in + GROWTH_TOKENS
        new = Usage(prompt_tokens=size, cached_tokens=size - GROWTH_TOKENS, cache_write_tokens=GROWTH_TOKENS)
        cost += price(new)
    return cost / taken_in


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(80_000, 400_000), st.sampled_from([0.025, 0.05, 0.1]), st.sampled_from([1.0, 1.25, 2.0]))
def test_the_formula_is_the_cost_of_a_loop_request_by_request(window: int, read: float, write: float) -> None:
    price = prices(read, write)
    assert cost_of(*cycle(window), FIXED, price) == pytest.approx(stepwise(*cycle(window), price), rel=0.08)


@settings(max_examples=examples(30), deadline=None)
@given(
    st.integers(60_000, 2_000_000),
    st.integers(0, 40_000),
    st.sampled_from([0.025, 0.05, 0.1, 0.25]),
    st.sampled_from([1.0, 1.25, 2.0]),
    st.sampled_from([None, 100_000, 272_000]),
)
def test_no_window_is_much_cheaper_than_the_chosen_one(
    largest: int, fixed: int, read: float, write: float, step: int | None
) -> None:
    price = prices(read, write, step)
    chosen = economic_window(largest, fixed, cycle, price)
    assert chosen <= largest
    cost = cost_of(*cycle(chosen), fixed, price)
    for window in range(30_000, largest, 10_000):
        other = cost_of(*cycle(window), fixed, price)
        if other is not None:
            assert cost is not None
            assert cost <= 1.02 * TOLERANCE * other


def test_cheap_reads_and_dear_writes_make_larger_windows_worthwhile() -> None:
    usual = economic_window(1_000_000, FIXED, cycle, prices())
    assert economic_window(1_000_000, FIXED, cycle, prices(read=0.025)) > usual
    assert economic_window(1_000_000, FIXED, cycle, prices(write=2.0)) > usual
    assert 60_000 < usual < 150_000


def test_a_window_ends_below_the_size_at_which_prices_rise() -> None:
    cheap = prices(read=0.025)
    assert cycle(economic_window(1_000_000, FIXED, cycle, cheap))[0] > 80_000
    dear = prices(read=0.025, dearer_above=70_000)
    assert cycle(economic_window(1_000_000, FIXED, cycle, dear))[0] <= 72_000


def test_a_model_s_small_window_is_used_whole() -> None:
    assert economic_window(32_000, 2_000, cycle, prices()) == 32_000
    assert economic_window(64_000, 2_000, cycle, prices()) == 64_000
