"""Which outputs a prune archives."""

from __future__ import annotations

import pytest

from contextstash.view.ladder import PruneLimits, PrunePlan, plan_prune
from tests.support.handmade_views import loop, outputs_of


def plan(results: list[int], **limits: int) -> PrunePlan:
    usual = {"keep_last": 0, "protect_tokens": 0, "protect_turns": 0, "minimum_tokens": 0, "smallest": 0}
    entries = loop(results)
    return plan_prune(entries, outputs_of(entries), PruneLimits(**{**usual, **limits}))


def taken(found: PrunePlan) -> list[int]:
    return [candidate.output.tokens for candidate in found.chosen]


def test_without_protection_everything_is_archived_oldest_first() -> None:
    assert taken(plan([100, 200, 300])) == [100, 200, 300]


@pytest.mark.parametrize(("minimum", "left"), [(599, 3), (600, 0), (601, 0)])
def test_a_batch_must_free_more_than_the_minimum(minimum: int, left: int) -> None:
    found = plan([100, 200, 300], minimum_tokens=minimum)
    assert len(taken(found)) == left
    assert left or "minimum" in found.reason


def test_it_says_how_many_outputs_are_protected_if_nothing_is_left_to_prune() -> None:
    found = plan([100, 100], keep_last=1, protect_tokens=5_000)
    assert found.reason.startswith("Nothing done: 2 tool outputs are protected, 0 are too small to archive.")


def test_small_outputs_stay_because_a_placeholder_would_not_be_smaller() -> None:
    found = plan([100, 2_000], smallest=150)
    assert taken(found) == [2_000]
    assert "too small" in plan([100], smallest=150).reason


def test_a_view_without_outputs_says_so() -> None:
    assert "no tool output" in plan([]).reason
