"""The chart of a window over time: computes the coordinates that a template draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contextstash.service.results import Change, Timeline, TimelinePoint

WIDTH = 960
HEIGHT = 260
"""Units of the drawing, which the page scales to its width."""

MAX_HEADROOM = 2.5
"""How many times higher than all areas the line of the usable window may lie and still be drawn. A guess: beyond it the
areas would be too low to read."""

MAX_ROWS = 20
"""Of the table, about: a guess at what a reader looks through."""

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
class Tick:
    """A place on an axis and its label."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A drawing of `WIDTH` times `HEIGHT`. `usable_y` is None if the usable window is far above all areas. `rows` are
    the same data as a table."""

    areas: tuple[Area, ...]
    markers: tuple[Marker, ...]
    usable_y: float | None
    across: tuple[Tick, ...]
    upward: tuple[Tick, ...]
    rows: tuple[tuple[int, dict[str, int]], ...]


def chart_of(timeline: Timeline) -> Chart:
    """The chart of a window over time."""
    last = max(1, timeline.points[-1].seq)
    heights = [_grouped(point) for point in timeline.points]
    highest = max([1, *(sum(groups.values()) for groups in heights)])
    top = timeline.usable if timeline.usable <= MAX_HEADROOM * highest else highest
    top = max(top, highest)
    across = [WIDTH * point.seq / last for point in timeline.points]
    return Chart(
        areas=_areas(heights, across, top),
        markers=tuple(_marker(change, last) for change in timeline.changes),
        usable_y=round(HEIGHT - HEIGHT * timeline.usable / top, 1) if timeline.usable <= top else None,
        across=tuple(Tick(WIDTH * share, f"{round(last * share):,}") for share in (0, 0.25, 0.5, 0.75, 1)),
        upward=tuple(Tick(HEIGHT - HEIGHT * share, _short(top * share)) for share in (0.25, 0.5, 0.75, 1)),
        rows=_rows(timeline.points, heights),
    )


def _marker(change: Change, last: int) -> Marker:
    tokens = f"{change.tokens_before:,} → {change.tokens_after:,} tokens"
    x = round(WIDTH * min(change.seq, last) / last, 1)
    return Marker(x, change.kind, f"{change.kind} at message {change.seq:,}: {tokens}")


def _grouped(point: TimelinePoint) -> dict[str, int]:
    return {name: sum(point.parts.get(part, 0) for part in parts) for name, parts in GROUPS.items()}


def _areas(heights: Sequence[Mapping[str, int]], across: Sequence[float], top: int) -> tuple[Area, ...]:
    below = [0] * len(heights)
    found = []
    for name in GROUPS:
        above = [low + groups[name] for low, groups in zip(below, heights, strict=True)]
        if any(groups[name] for groups in heights):
            upper = [_place(x, tokens, top) for x, tokens in zip(across, above, strict=True)]
            lower = [_place(x, tokens, top) for x, tokens in zip(across, below, strict=True)]
            points = " ".join([_place(0, below[0], top), *upper, *reversed(lower)])
            found.append(Area(name, name.replace(" ", "-"), points, heights[-1][name]))
        below = above
    return tuple(found)


def _place(x: float, tokens: int, top: int) -> str:
    return f"{x:.1f},{HEIGHT - HEIGHT * tokens / top:.1f}"


def _short(tokens: float) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f} M"
    return f"{tokens / 1_000:.0f} k" if tokens >= 1_000 else f"{tokens:.0f}"


def _rows(points: Sequence[TimelinePoint], heights: Sequence[dict[str, int]]) -> tuple[tuple[int, dict[str, int]], ...]:
    step = max(1, len(points) // MAX_ROWS)
    chosen = sorted({*range(0, len(points), step), len(points) - 1})
    return tuple((points[place].seq, heights[place]) for place in chosen)
