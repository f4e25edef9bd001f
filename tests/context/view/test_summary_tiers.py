"""Which summaries are merged, and into which level."""

from __future__ import annotations

import pytest

from contextstash.context.view.summary_tiers import plan_merge
from contextstash.context.view.view import Entry
from tests.support.handmade_views import message, text
from tests.support.stored_edits import summarizing


def standing(*levels: str, tokens: int = 100) -> list[Entry]:
    """A view that starts with summaries of these levels, each of ten messages."""
    entries = [
        Entry(summary=summarizing(10 * place, 10 * place + 9, level=level, tokens=tokens))
        for place, level in enumerate(levels)
    ]
    return [*entries, Entry(message=message(10 * len(levels), "user", text(50)))]


@pytest.mark.parametrize(("budget", "merged"), [(399, True), (400, False), (401, False)])
def test_summaries_are_merged_if_they_exceed_their_budget(budget: int, merged: bool) -> None:
    assert (plan_merge(standing(*["recent"] * 4), budget) is not None) == merged


@pytest.mark.parametrize(
    ("levels", "span", "level"),
    [
        (("recent", "recent", "recent"), (0, 19), "medium"),
        (("medium", "recent", "recent", "recent"), (10, 29), "medium"),
        (("medium", "medium", "recent"), (0, 19), "long"),
        (("medium", "recent", "recent"), (0, 19), "medium"),
        (("long", "medium", "recent"), (0, 19), "long"),
        (("long", "long", "recent"), (0, 19), "long"),
        (("recent", "recent"), (0, 19), "medium"),
        (("long", "recent"), (0, 19), "long"),
    ],
)
def test_older_ones_are_merged_first_and_the_newest_last(
    levels: tuple[str, ...], span: tuple[int, int], level: str
) -> None:
    plan = plan_merge(standing(*levels), 10)
    assert plan is not None
    assert ((plan.first_seq, plan.last_seq), plan.level) == (span, level)


def test_one_summary_alone_is_not_merged() -> None:
    assert plan_merge(standing("recent", tokens=10_000), 10) is None


def test_only_adjacent_summaries_are_merged() -> None:
    first, second, third, last = standing("recent", "recent", "recent")
    between = Entry(message=message(10, "user", text(50)))
    assert plan_merge([first, between, second, third, last], 10) is None
