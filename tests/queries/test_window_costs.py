"""What recorded requests would have cost if the client had compacted at another size."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.queries.window_advice import hidden_prefix, replayed
from contextstash_storage.records import Usage
from tests.support.effort import examples

PREFIX = 20_000


def price(usage: Usage) -> float:
    """Claude's: reads at a tenth, writes at 1.25, replies at five times the price of an uncached token."""
    plain = usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens
    return plain + 0.1 * usage.cached_tokens + 1.25 * usage.cache_write_tokens + 5 * usage.completion_tokens


def call(size: int, cached: int) -> Usage:
    return Usage(prompt_tokens=size, cached_tokens=cached, cache_write_tokens=size - cached)


def growing(calls: int, growth: int = 2_000) -> list[Usage]:
    """A session that begins with its prefix and grows evenly, each request reading what the one before wrote."""
    sizes = [PREFIX + growth * number for number in range(calls)]
    return [call(sizes[0], cached=0), *(call(size, cached=size - growth) for size in sizes[1:])]


def test_a_session_that_never_reaches_the_point_costs_what_it_did() -> None:
    steps = growing(30)
    assert replayed(steps, 100_000, price) == replayed(steps, None, price)


def test_a_long_session_costs_less_the_earlier_it_is_compacted_and_compacts_more_often() -> None:
    steps = growing(300)
    direct = replayed(steps, None, price)
    at_150, at_100 = (replayed(steps, point, price) for point in (150_000, 100_000))
    assert at_100.cost < at_150.cost < direct.cost
    assert at_100.tokens < at_150.tokens < direct.tokens
    assert at_100.compactions > at_150.compactions > 0


def test_each_compaction_is_charged_with_its_summary_and_a_window_that_the_cache_has_not_seen() -> None:
    steps = growing(45)
    [last_whole, compacted] = (replayed(steps[:number], 100_000, price) for number in (41, 42))
    assert (last_whole.compactions, compacted.compactions) == (0, 1)
    new_window = PREFIX + 3_000 + 5_000 + 8_700
    summary_call = price(Usage(prompt_tokens=102_000, cached_tokens=100_000, completion_tokens=3_000))
    first_request = price(Usage(prompt_tokens=new_window, cached_tokens=PREFIX, cache_write_tokens=new_window - PREFIX))
    assert compacted.cost - last_whole.cost == summary_call + first_request


def test_a_client_s_own_compaction_and_an_expired_cache_are_kept() -> None:
    steps = [*growing(60), call(40_000, cached=PREFIX), call(42_000, cached=0)]
    assert replayed(steps, 1_000_000, price) == replayed(steps, None, price)
    assert hidden_prefix(steps) == PREFIX


def test_a_window_that_its_own_start_would_fill_again_is_not_compacted_at_every_request() -> None:
    steps = growing(100)
    assert replayed(steps, 35_000, price).compactions <= len(steps) / 4


@given(
    st.lists(st.tuples(st.integers(1_000, 400_000), st.floats(0, 1)), min_size=1, max_size=60),
    st.integers(10_000, 400_000),
)
@settings(max_examples=examples(200))
def test_no_request_is_larger_than_it_was(calls: list[tuple[int, float]], point: int) -> None:
    steps = [call(size, cached=int(size * share)) for size, share in calls]
    found = replayed(steps, point, price)
    summaries = found.compactions * max(step.prompt_tokens for step in steps)
    assert 0 < found.tokens <= sum(step.prompt_tokens for step in steps) + summaries
