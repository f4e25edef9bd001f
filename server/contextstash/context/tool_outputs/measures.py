"""Gauges: each is one limit on a text, how it is measured and how a text is cut to it; and the ends that hold all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.context.text import truncate
from contextstash.context.text.truncate import Count

Unit = Literal["lines", "characters", "bytes", "tokens"]

Take = Callable[[str, int], str]
"""`take(text, most)`: one end of a text, of at most that many units."""


@dataclass(frozen=True, slots=True)
class Gauge:
    """At most `most` units. `first` and `last` take the longest end that fits a number of units; `fits` tells whether
    a text does, without measuring more of it than is needed."""

    unit: Unit
    most: int
    measure: Count
    first: Take
    last: Take
    fits: Callable[[str, int], bool]

    def holds(self, text: str) -> bool:
        """Whether a text is within the limit."""
        return self.fits(text, self.most)


def line_gauge(most: int) -> Gauge:
    """At most that many lines."""
    return _counted("lines", most, truncate.line_count, truncate.first_lines, truncate.last_lines)


def character_gauge(most: int) -> Gauge:
    """At most that many characters."""
    return _counted("characters", most, len, truncate.first_characters, truncate.last_characters)


def byte_gauge(most: int) -> Gauge:
    """At most that many bytes in UTF-8."""
    return _counted("bytes", most, truncate.byte_length, truncate.first_bytes, truncate.last_bytes)


def token_gauge(most: int, count: Count) -> Gauge:
    """At most that many tokens as `count` counts them."""
    return Gauge(
        "tokens",
        most,
        count,
        lambda text, room: truncate.first_tokens(text, room, count),
        lambda text, room: truncate.last_tokens(text, room, count),
        lambda text, room: truncate.within_tokens(text, room, count),
    )


def _counted(unit: Unit, most: int, measure: Count, first: Take, last: Take) -> Gauge:
    return Gauge(unit, most, measure, first, last, lambda text, room: measure(text) <= room)


Split = Callable[[Gauge, int], tuple[int, int]]
"""`split(gauge, room)`: how much of the room the start gets, and how much the end."""


def at_the_start(gauge: Gauge, room: int) -> tuple[int, int]:
    """All of the room for the start."""
    return room, 0


def at_both_ends(gauge: Gauge, room: int) -> tuple[int, int]:
    """Half of the room for each end."""
    return room - room // 2, room // 2


def ends(text: str, gauges: Sequence[Gauge], rooms: Sequence[int], split: Split) -> tuple[str, str]:
    """The start and the end to show of a text that does not fit: cut by each gauge in turn to its room."""
    first = last = text
    whole = True
    for gauge, room in zip(gauges, rooms, strict=True):
        if whole and gauge.fits(text, room):
            continue
        head, tail = split(gauge, room)
        first, last, whole = gauge.first(first, head), gauge.last(last, tail), False
    if len(first) + len(last) > len(text):
        last = text[len(first) :]
    return first, last
