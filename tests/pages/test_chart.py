"""The charts of the pages: what a window held over time, and what was sent by day."""

from __future__ import annotations

from datetime import date

import pytest

from contextstash.pages.chart import HEIGHT, MAX_COLUMNS, chart_of, columns_of
from contextstash.results import Change, DayUse, Timeline, TimelinePoint


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


def day(name: str, tokens: int = 100) -> DayUse:
    return DayUse(day=name, calls=1, prompt_tokens=tokens, completion_tokens=1, cached_tokens=0)


def test_idle_days_are_columns_without_height_up_to_today() -> None:
    columns = columns_of([day("2026-11-01"), day("2026-11-04", 50)], date(2026, 11, 6))
    assert [column.height for column in columns.columns] == [100, 0, 0, 50, 0, 0]
    assert columns.columns[1].text == "2026-11-02: no calls"
    assert (columns.unit, columns.labels) == ("day", ("2026-11-01", "2026-11-06"))


def test_a_long_time_is_drawn_by_weeks_that_end_today() -> None:
    columns = columns_of([day("2026-01-05"), day("2026-11-17"), day("2026-11-23")], date(2026, 11, 23))
    assert columns.unit == "week"
    assert [column.height for column in columns.columns if column.height] == [50, 100]
    assert columns.columns[-1].text.startswith("week from 2026-11-17: 200 tokens in 2 calls")
    assert len(columns.columns) <= MAX_COLUMNS


def test_without_calls_there_is_nothing_to_draw() -> None:
    assert columns_of([], date(2026, 11, 23)).columns == ()
