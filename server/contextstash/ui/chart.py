"""The charts: computes the coordinates that templates draw, of a window over time, its parts now, and days."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.display.words import amount, dollars
from contextstash.service.results import Change, DayUse, Timeline, TimelinePoint

WIDTH = 960
HEIGHT = 260
"""Units of the drawing, which the page scales to its width."""

MAX_HEADROOM = 2.5
"""How many times higher than all areas the line of the usable window may lie and still be drawn: beyond it the
areas would be too low to read."""

MAX_DAYS = 60
"""Days with calls that are drawn: about a quarter of a year of work."""

MAX_LABELS = 8
"""Days that have a label each; a narrow screen has no room for more."""

MIN_COLUMNS = 7
"""Of the width: a single day would be one block."""

GAP = 0.25
"""Between two columns, of a column's width."""

MAX_ROWS = 20
"""Rows of the table, about."""

GROUPS: Mapping[str, tuple[str, ...]] = {
    "system": ("system",),
    "summaries": ("summaries",),
    "user": ("user", "images"),
    "assistant": ("assistant", "thinking", "tool_calls"),
    "tool results": ("tool_results", "archived"),
    "unlogged text": ("unrecorded",),
}
"""The areas from the bottom up, and the parts of a window in each. Unlogged text: the system prompt, tool definitions
and other text of requests that was not recorded."""


@dataclass(frozen=True, slots=True)
class Area:
    """The area of one group: the points of a polygon, and the tokens after the last message."""

    name: str
    css: str
    points: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Marker:
    """A change of the window, at a place on the axis."""

    x: float
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of `WIDTH` times `HEIGHT`. `usable_y` is None if the usable window is far above all areas; `lines` are
    the heights of the grid, the labels stand at equal distances, `upward` from the top down. `rows` are the same data
    as a table, `data` what a script shows of each point."""

    areas: tuple[Area, ...]
    markers: tuple[Marker, ...]
    usable_y: float | None
    lines: tuple[float, ...]
    across: tuple[str, ...]
    upward: tuple[str, ...]
    rows: tuple[tuple[int, dict[str, int]], ...]
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a bar, its place and width in percent."""

    name: str
    css: str
    x: float
    width: float
    tokens: int


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a chart that is 100 high."""

    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True, slots=True)
class Columns:
    """A chart of columns, `highest` next to its top; `labels` below it, one for each place, or of the first and
    last."""

    columns: tuple[Column, ...]
    width: float
    labels: tuple[str, ...]
    highest: int


def chart_of(timeline: Timeline) -> Chart:
    """The chart of a window over time."""
    last = max(1, timeline.points[-1].seq)
    heights = [_grouped(point.parts) for point in timeline.points]
    highest = max([1, *(sum(groups.values()) for groups in heights)])
    top = timeline.usable if timeline.usable <= MAX_HEADROOM * highest else highest
    top = max(top, highest)
    across = [WIDTH * point.seq / last for point in timeline.points]
    return Chart(
        areas=_areas(heights, across, top),
        markers=tuple(_marker(change, last) for change in timeline.changes),
        usable_y=round(HEIGHT - HEIGHT * timeline.usable / top, 1) if timeline.usable <= top else None,
        lines=tuple(HEIGHT * share for share in (0, 0.25, 0.5, 0.75, 1)),
        across=("message 0", *(f"{round(last * share):,}" for share in (0.25, 0.5, 0.75, 1))),
        upward=tuple(amount(top * share) for share in (1, 0.75, 0.5, 0.25, 0)),
        rows=_rows(timeline.points, heights),
        data=_data(timeline, heights),
    )


def _data(timeline: Timeline, heights: Sequence[Mapping[str, int]]) -> dict[str, Any]:
    """Each point's message and tokens by group, in the groups' order from the top down; the changes by message."""
    names = [name for name in reversed(list(GROUPS)) if any(groups[name] for groups in heights)]
    return {
        "names": names,
        "points": [
            [point.seq, *(groups[name] for name in names)]
            for point, groups in zip(timeline.points, heights, strict=True)
        ],
        "changes": [
            [change.seq, change.kind, change.tokens_before, change.tokens_after] for change in timeline.changes
        ],
    }


def stack_of(breakdown: Mapping[str, int], usable: int) -> tuple[Share, ...]:
    """The parts of a window as one bar: all of it is the usable window, or the tokens if they are more."""
    groups = _grouped(breakdown)
    whole = max(usable, sum(groups.values()), 1)
    found, x = [], 0.0
    for name, tokens in groups.items():
        if tokens:
            width = 100 * tokens / whole
            found.append(Share(name, _css(name), round(x, 2), round(width, 2), tokens))
            x += width
    return tuple(found)


def columns_of(days: Sequence[DayUse]) -> Columns:
    """A column for each of the last days with model calls."""
    recent = days[-MAX_DAYS:]
    highest = max([1, *(day.prompt_tokens for day in recent)])
    return Columns(
        columns=tuple(
            Column(
                x=place + GAP / 2,
                y=round(100 - 100 * day.prompt_tokens / highest, 2),
                width=1 - GAP,
                height=round(100 * day.prompt_tokens / highest, 2),
                text=f"{day.day}: {day.prompt_tokens:,} tokens in {day.calls:,} calls, {dollars(day.cost)}",
            )
            for place, day in enumerate(recent)
        ),
        width=max(len(recent), MIN_COLUMNS),
        labels=_day_labels([day.day for day in recent]),
        highest=highest,
    )


def _day_labels(days: Sequence[str]) -> tuple[str, ...]:
    """Month and day of each place if there is room, else the first and the last day."""
    if len(days) > MAX_LABELS:
        return days[0], days[-1]
    return tuple(day[5:] for day in days) + ("",) * (MIN_COLUMNS - len(days))


def _css(name: str) -> str:
    return name.replace(" ", "-")


def _marker(change: Change, last: int) -> Marker:
    tokens = f"{change.tokens_before:,} → {change.tokens_after:,} tokens"
    x = round(WIDTH * min(change.seq, last) / last, 1)
    return Marker(x, change.kind, f"{change.kind} at message {change.seq:,}: {tokens}")


def _grouped(held: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(held.get(part, 0) for part in parts) for name, parts in GROUPS.items()}


def _areas(heights: Sequence[Mapping[str, int]], across: Sequence[float], top: int) -> tuple[Area, ...]:
    below = [0] * len(heights)
    found = []
    for name in GROUPS:
        above = [low + groups[name] for low, groups in zip(below, heights, strict=True)]
        if any(groups[name] for groups in heights):
            upper = [_place(x, tokens, top) for x, tokens in zip(across, above, strict=True)]
            lower = [_place(x, tokens, top) for x, tokens in zip(across, below, strict=True)]
            points = " ".join([_place(0, below[0], top), *upper, *reversed(lower)])
            found.append(Area(name, _css(name), points, heights[-1][name]))
        below = above
    return tuple(found)


def _place(x: float, tokens: int, top: int) -> str:
    return f"{x:.1f},{HEIGHT - HEIGHT * tokens / top:.1f}"


def _rows(points: Sequence[TimelinePoint], heights: Sequence[dict[str, int]]) -> tuple[tuple[int, dict[str, int]], ...]:
    step = max(1, len(points) // MAX_ROWS)
    chosen = sorted({*range(0, len(points), step), len(points) - 1})
    return tuple((points[place].seq, heights[place]) for place in chosen)
