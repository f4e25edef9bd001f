"""Limits in one unit: how a text is measured in lines, characters, bytes or tokens, and how its ends are cut to fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.context.text import truncate
from contextstash.context.text.truncate import Count

Unit = Literal["lines", "characters", "bytes", "tokens"]

Take = Callable[[str, int], str]
"""`take(text, maximum)`: one end of a text, of at most that many units."""


@dataclass(frozen=True, slots=True)
class UnitLimit:
    """At most `maximum` units. `first` and `last` return the longest end of a text within a number of units; `fits`
    checks whether the whole text is within it, without measuring more of the text than it needs."""

    unit: Unit
    maximum: int
    measure: Count
    first: Take
    last: Take
    fits: Callable[[str, int], bool]

    def holds(self, text: str) -> bool:
        """Whether a text is within the limit."""
        return self.fits(text, self.maximum)


def line_limit(maximum: int) -> UnitLimit:
    """At most that many lines."""
    return _counted("lines", maximum, truncate.line_count, truncate.first_lines, truncate.last_lines)


def character_limit(maximum: int) -> UnitLimit:
    """At most that many characters."""
    return _counted("characters", maximum, len, truncate.first_characters, truncate.last_characters)


def byte_limit(maximum: int) -> UnitLimit:
    """At most that many bytes in UTF-8."""
    return _counted("bytes", maximum, truncate.byte_length, truncate.first_bytes, truncate.last_bytes)


def token_limit(maximum: int, count: Count) -> UnitLimit:
    """At most that many tokens as `count` counts them."""
    return UnitLimit(
        "tokens",
        maximum,
        count,
        lambda text, budget: truncate.first_tokens(text, budget, count),
        lambda text, budget: truncate.last_tokens(text, budget, count),
        lambda text, budget: truncate.within_tokens(text, budget, count),
    )


def _counted(unit: Unit, maximum: int, measure: Count, first: Take, last: Take) -> UnitLimit:
    return UnitLimit(unit, maximum, measure, first, last, lambda text, budget: measure(text) <= budget)


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
        if whole and limit.fits(text, budget):
            continue
        head, tail = split(limit, budget)
        first, last, whole = limit.first(first, head), limit.last(last, tail), False
    if len(first) + len(last) > len(text):
        last = text[len(first) :]
    return first, last
