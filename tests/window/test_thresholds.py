"""The budget of a window, and its levels."""

from __future__ import annotations

import pytest

from contextstash.window.settings import ContextSettings
from contextstash.window.thresholds import budget_of, level_of, next_step


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


@pytest.mark.parametrize("level", ["prune", "compact", "critical", "overflow"])
def test_each_level_says_what_to_do(level: str) -> None:
    budget = budget_of(ContextSettings(output_reserve=0), 1_000)
    found = {level_of(tokens, budget): next_step(level_of(tokens, budget)) for tokens in range(0, 1_100, 10)}
    assert "Call " in found[level] or "call " in found[level]  # type: ignore[index]
    assert "compact" in next_step(level, followed=True)  # type: ignore[arg-type]
