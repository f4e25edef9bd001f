"""The chart of what a window held over time."""

from __future__ import annotations

import pytest

from contextstash.pages.chart import HEIGHT, chart_of
from contextstash.results import Change, Timeline, TimelinePoint


def timeline(usable: int, *changes: Change, tokens: int = 10_000) -> Timeline:
    points = [TimelinePoint(seq=seq, parts={"user": tokens}) for seq in (1, 1_000)]
    return Timeline(session_id="s", usable=usable, points=points, changes=list(changes))


def change(seq: int, kind: str = "prune", before: int = 9_000, after: int = 8_000) -> Change:
    return Change(kind=kind, seq=seq, tokens_before=before, tokens_after=after, reason="")


def test_neighbouring_prunes_are_one_marker_that_says_how_many_they_are() -> None:
    chart = chart_of(timeline(20_000, change(100), change(103), change(106), change(400)))
    texts = [marker.text for marker in chart.markers]
    assert texts == ["3 prunes at messages 100 to 106: 3,000 tokens less", "prune at message 400: 9,000 → 8,000 tokens"]


def test_neighbouring_changes_of_two_kinds_stay_two_markers() -> None:
    chart = chart_of(timeline(20_000, change(100), change(101, "compaction"), change(102)))
    assert [marker.kind for marker in chart.markers] == ["prune", "compaction", "prune"]


@pytest.mark.parametrize("usable", [12_000, 60_000, 110_000])
def test_a_window_is_drawn_against_what_it_can_hold(usable: int) -> None:
    chart = chart_of(timeline(usable))
    assert chart.usable_y == 0
    assert f"{HEIGHT - HEIGHT * 10_000 / usable:.1f}" in chart.areas[0].points


def test_areas_that_would_be_too_low_to_read_fill_the_chart() -> None:
    chart = chart_of(timeline(970_000))
    assert chart.usable_y is None
    assert ",0.0" in chart.areas[0].points
