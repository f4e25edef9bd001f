"""Shapes: what a cut output looks like, and how it is made as large as its limits allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash.context.tool_outputs.measures import Gauge, Split, at_both_ends, ends
from contextstash.context.tool_outputs.notices import Shown, Wording
from contextstash.context.tool_outputs.salient_lines import choose, telling_lines, written

MIDDLE_ROOM = {"lines": 3, "characters": 50, "bytes": 50, "tokens": 0}
"""What the middle-out cut leaves free on each side for its notice; the 50 are the parent designs', who take four
characters for a token."""

SLACK = 12
"""By how much a notice may grow once its numbers are known, in characters, bytes and tokens."""

TELLING_SHARE = 0.3
"""Most of the room that telling lines take."""

SNAP_SHARE = 0.25
"""Up to this much of an end is given up for whole lines."""

SAMPLE = "x\n"

ATTEMPTS = 6

Shape = Callable[[Sequence[Gauge], Sequence[int]], Shown | None]
"""`shape(gauges, rooms)`: what is shown in about that much room, in the gauges' units; None if there is too little
for any of the text and what must be said."""

Say = Callable[[str, str], Shown]
"""`say(first, last)`: the two ends of a text put together with what is said of the rest."""


def fitted(gauges: Sequence[Gauge], shape: Shape) -> Shown | None:
    """The shape made so that every limit holds, None if it can't be: tokens do not add up, so it is measured."""
    rooms = [gauge.most for gauge in gauges]
    for _ in range(ATTEMPTS):
        shown = shape(gauges, rooms)
        if shown is None:
            return None
        excess = [gauge.measure(shown.text) - gauge.most for gauge in gauges]
        if max(excess) <= 0:
            return shown
        rooms = [room - (over + over // 4 + 1) * (over > 0) for room, over in zip(rooms, excess, strict=True)]
    return None


def plain(text: str, split: Split, say: Say) -> Shape:
    """The ends that `split` leaves, with room kept for what `say` adds."""
    sample = say(SAMPLE, "").text

    def shape(gauges: Sequence[Gauge], rooms: Sequence[int]) -> Shown | None:
        inner = _inner(gauges, rooms, sample)
        return say(*ends(text, gauges, inner, split)) if inner else None

    return shape


def middle_out(wording: Wording) -> Shape:
    """The first and the last half of the limit less 50."""

    def split(gauge: Gauge, room: int) -> tuple[int, int]:
        keep = room // 2 - MIDDLE_ROOM[gauge.unit]
        return keep, keep

    def shape(gauges: Sequence[Gauge], rooms: Sequence[int]) -> Shown | None:
        if any(split(gauge, room)[0] <= 0 for gauge, room in zip(gauges, rooms, strict=True)):
            return None
        return wording.middle(*ends(wording.text, gauges, rooms, split))

    return shape


def telling(wording: Wording) -> Shape:
    """Head and tail, and between them the lines that matter, with their numbers."""
    text = wording.text
    found = telling_lines(text)
    sample = wording.telling("…" if found else "", SAMPLE, "").text

    def shape(gauges: Sequence[Gauge], rooms: Sequence[int]) -> Shown | None:
        inner = _inner(gauges, rooms, sample)
        if not inner:
            return None
        shares = [int(room * TELLING_SHARE) for room in inner]
        first, last = _whole_lines(*ends(text, gauges, _less(inner, shares), at_both_ends))
        chosen = choose(found, gauges, shares, len(first), len(text) - len(last))
        used = [gauge.measure(written(chosen, 0)) for gauge in gauges]
        first, last = _whole_lines(*ends(text, gauges, _less(inner, used), at_both_ends))
        shown = [line for line in chosen if line.start >= len(first) and line.end <= len(text) - len(last)]
        return wording.telling(written(shown, first.count("\n")), first, last)

    return shape


def _inner(gauges: Sequence[Gauge], rooms: Sequence[int], sample: str) -> list[int]:
    """The rooms without what is said around the text, as around the sample; none if nothing is left of one."""
    inner = []
    for gauge, room in zip(gauges, rooms, strict=True):
        said = gauge.measure(sample) - gauge.measure(SAMPLE)
        left = room - said - SLACK * (gauge.unit != "lines")
        if left <= 0:
            return []
        inner.append(left)
    return inner


def _less(rooms: Sequence[int], used: Sequence[int]) -> list[int]:
    return [room - less for room, less in zip(rooms, used, strict=True)]


def _whole_lines(first: str, last: str) -> tuple[str, str]:
    """Both ends without the part of a line at the cut, if it is small against what is left."""
    end = first.rfind("\n") + 1
    start = last.find("\n") + 1
    if end < len(first) * (1 - SNAP_SHARE):
        end = len(first)
    if start > len(last) * SNAP_SHARE:
        start = 0
    return first[:end], last[start:]
