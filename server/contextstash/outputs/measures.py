"""How a text is measured in lines, characters, bytes or tokens, and its longest end within so many of them, never cut
inside a character."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from contextstash.window.settings import Cut

Unit = Literal["lines", "characters", "bytes", "tokens"]

Count = Callable[[str], int]
"""Tokens of a text."""

MIDDLE_RESERVE = {"lines": 1, "characters": 50, "bytes": 50, "tokens": 0}
"""What the middle-out cut leaves free on each side for its notice. The 50 come from the designs that the presets
`staged` and `token-budget` reproduce. They count a token as four characters, so tokens need no reserve."""

MAX_TOKENS_PER_BYTE = 2
"""No token counter returns more: a byte-pair token has at least one byte, and a model's factor is below 2."""

MAX_CHARACTERS_PER_TOKEN = 16
"""At most this many characters are kept for each token: a run of blanks has many more, but would only fill the screen.
That is four times the ratio of English text."""

TOKEN_TOLERANCE = 200
"""A part in tokens may be shorter than the longest by one part in so many: each count takes milliseconds."""


@dataclass(frozen=True, slots=True)
class UnitLimit:
    """At most `maximum` units, in UTF-8 if these are bytes; `measure` counts them in a text."""

    unit: Unit
    maximum: int
    measure: Count

    @classmethod
    def of(cls, unit: Unit, maximum: int, count: Count) -> UnitLimit:
        """A limit in this unit; `count` counts tokens."""
        return cls(unit, maximum, _MEASURES.get(unit, count))

    def holds(self, text: str, maximum: int | None = None) -> bool:
        """Whether a text is within the limit, or within another maximum. Of tokens, nothing is counted if the text is
        far below the limit, and only a beginning if it is far above."""
        most = self.maximum if maximum is None else maximum
        if self.unit == "tokens":
            if MAX_TOKENS_PER_BYTE * byte_length(text) <= most:
                return True
            start = MAX_CHARACTERS_PER_TOKEN * most
            if len(text) > 2 * start and self.measure(text[:start]) > 2 * most:
                return False
        return self.measure(text) <= most

    def longest(self, text: str, most: int, *, last: bool = False) -> str:
        """The longest start of a text within `most` units, or the longest `last` part of it; about the longest in
        tokens."""
        if most <= 0:
            return ""
        reach = len(text)
        if self.unit != "lines":  # of any length; a character takes a byte or more
            reach = min(reach, most * (MAX_CHARACTERS_PER_TOKEN if self.unit == "tokens" else 1))
        tolerance = TOKEN_TOLERANCE if self.unit == "tokens" else reach + 1
        low, high = 0, reach + 1
        size = min(reach, 4 * most)  # about what English text has for each token
        step = 0
        while high - low > 1 + low // tolerance:
            used = self.measure(_part(text, size, last))
            low, high = (size, high) if used <= most else (low, size)
            size = size * most // max(1, used)
            step += 1
            # Scaling by the last count is fast on even text; every third step halves, so that no text is slow.
            if not low < size < high or step % 3 == 0:
                size = (low + high) // 2
        return _part(text, low, last)


def divided(cut: Cut, unit: Unit, budget: int) -> tuple[int, int]:
    """How much of a budget in this unit the head gets, and how much the tail."""
    if cut == "head":
        return budget, 0
    if cut == "middle":
        keep = budget // 2 - MIDDLE_RESERVE[unit]
        return keep, keep
    return budget - budget // 2, budget // 2


def ends(text: str, limits: Sequence[UnitLimit], budgets: Sequence[int], cut: Cut) -> tuple[str, str]:
    """The head and the tail to show of a text that does not fit: cut by each limit in turn to its budget."""
    first = last = text
    whole = True
    for limit, budget in zip(limits, budgets, strict=True):
        # Limits in several units cut independently; one that the whole text meets must not cut it to its halves.
        if whole and limit.holds(text, budget):
            continue
        head, tail = divided(cut, limit.unit, budget)
        first, last, whole = limit.longest(first, head), limit.longest(last, tail, last=True), False
    if len(first) + len(last) > len(text):
        last = text[len(first) :]
    return first, last


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def line_count(text: str) -> int:
    """Number of lines: the line feeds, plus a last line without one. All of contextstash counts lines this way."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


_MEASURES: dict[Unit, Count] = {"lines": line_count, "characters": len, "bytes": byte_length}


def line_list(text: str) -> list[str]:
    """The lines with their line feeds; joined, they are the text."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def is_pair(text: str, index: int) -> bool:
    """Whether this index splits a surrogate pair that is kept as two characters."""
    return 0 < index < len(text) and "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"


def _part(text: str, characters: int, last: bool) -> str:
    """The first or last so many characters of a text; one less if they would split a pair."""
    if last:
        start = len(text) - characters
        return text[start + is_pair(text, start) :]
    return text[: characters - is_pair(text, characters)]
