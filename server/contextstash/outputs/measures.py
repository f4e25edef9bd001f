"""Limits in one unit: how a text is measured in lines, characters, bytes or tokens, and how its ends are cut to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from contextstash.outputs import truncate
from contextstash.outputs.truncate import Count, Take

Unit = Literal["lines", "characters", "bytes", "tokens"]

_ENDS: dict[Unit, tuple[Count, Take, Take]] = {
    "lines": (truncate.line_count, truncate.first_lines, truncate.last_lines),
    "characters": (len, truncate.first_characters, truncate.last_characters),
    "bytes": (truncate.byte_length, truncate.first_bytes, truncate.last_bytes),
}


@dataclass(frozen=True, slots=True)
class UnitLimit:
    """At most `maximum` units, in UTF-8 if these are bytes. `first` and `last` return the longest end of a text within
    a number of units."""

    unit: Unit
    maximum: int
    measure: Count
    first: Take
    last: Take

    @classmethod
    def of(cls, unit: Unit, maximum: int, count: Count) -> UnitLimit:
        """A limit in this unit; `count` counts tokens."""
        if unit != "tokens":
            return cls(unit, maximum, *_ENDS[unit])
        first, last = partial(truncate.first_tokens, count=count), partial(truncate.last_tokens, count=count)
        return cls(unit, maximum, count, first, last)

    def holds(self, text: str, maximum: int | None = None) -> bool:
        """Whether a text is within the limit, or within another maximum."""
        most = self.maximum if maximum is None else maximum
        if self.unit == "tokens":
            return truncate.within_tokens(text, most, self.measure)
        return self.measure(text) <= most


Split = Callable[[UnitLimit, int], tuple[int, int]]
"""`split(limit, budget)`: how much of the budget the head gets, and how much the tail."""


def head_only(limit: UnitLimit, budget: int) -> tuple[int, int]:
    """The whole budget for the head."""
    return budget, 0


def head_and_tail(limit: UnitLimit, budget: int) -> tuple[int, int]:
    """Half of the budget for each end."""
    return budget - budget // 2, budget // 2


def ends(text: str, limits: Sequence[UnitLimit], budgets: Sequence[int], split: Split) -> tuple[str, str]:
    """The head and the tail to show of a text that does not fit: cut by each limit in turn to its budget."""
    first = last = text
    whole = True
    for limit, budget in zip(limits, budgets, strict=True):
        # Limits in several units cut independently; one that the whole text meets must not cut it to its halves.
        if whole and limit.holds(text, budget):
            continue
        head, tail = split(limit, budget)
        first, last, whole = limit.first(first, head), limit.last(last, tail), False
    if len(first) + len(last) > len(text):
        last = text[len(first) :]
    return first, last
