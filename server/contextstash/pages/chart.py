"""The chart of a window over time: computes the coordinates that the template draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash.outputs.counts import amount, before_and_after, counted
from contextstash.results import Change, Timeline, TimelinePoint

WIDTH = 960
HEIGHT = 260
"""Units of the drawing, which the page scales to its width."""

MAX_HEADROOM = 12
"""How many times higher than all areas the usable window may be and still be the chart's top: beyond it the areas would
be lines of 20 pixels, too low to read."""

MARKER_DISTANCE = WIDTH / 80
"""Changes of one kind with less between them are one marker: on a phone's width, 4 pixels."""

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
    """A change of the window, or neighbouring ones of one kind, at a place on the axis."""

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
        markers=_markers(timeline.changes, last),
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


def _css(name: str) -> str:
    return name.replace(" ", "-")


def _markers(changes: Sequence[Change], last: int) -> tuple[Marker, ...]:
    """A marker for each run of neighbouring changes of one kind, at its last one."""
    runs: list[list[Change]] = []
    for change in changes:
        before = runs[-1][-1] if runs else None
        if before and before.kind == change.kind and WIDTH * (change.seq - before.seq) < MARKER_DISTANCE * last:
            runs[-1].append(change)
        else:
            runs.append([change])
    return tuple(_marker(run, last) for run in runs)


def _marker(run: Sequence[Change], last: int) -> Marker:
    first, end = run[0], run[-1]
    x = round(WIDTH * min(end.seq, last) / last, 1)
    if len(run) == 1:
        tokens = before_and_after(first.tokens_before, first.tokens_after)
        return Marker(x, first.kind, f"{first.kind} at message {first.seq:,}: {tokens} tokens")
    freed = sum(change.tokens_before - change.tokens_after for change in run)
    where = f"messages {first.seq:,} to {end.seq:,}"
    tokens = f"{abs(freed):,} tokens {'less' if freed >= 0 else 'more'}"
    return Marker(x, first.kind, f"{counted(len(run), first.kind)} at {where}: {tokens}")


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
