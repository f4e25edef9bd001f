"""How a text is measured in lines, characters, bytes or tokens, and how its ends are cut to fit, never inside a
character."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

Unit = Literal["lines", "characters", "bytes", "tokens"]

Count = Callable[[str], int]
"""Tokens of a text."""

Take = Callable[[str, int], str]
"""`take(text, most)`: one end of a text, of at most that many units."""

MAX_TOKENS_PER_BYTE = 2
"""No token counter returns more: a byte-pair token has at least one byte, and a model's factor is below 2."""

MAX_CHARACTERS_PER_TOKEN = 16
"""At most this many characters are kept for each token: a run of blanks has many more, but would only fill the screen.
That is four times the ratio of English text."""

MAX_COUNTS = 20
"""How often a text is counted at most to find the longest part that fits. It bounds the time."""


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
        if unit == "lines":
            return cls(unit, maximum, line_count, first_lines, last_lines)
        if unit == "characters":
            return cls(unit, maximum, len, _first_characters, _last_characters)
        if unit == "bytes":
            first, last = (partial(_most_bytes, take=take) for take in (_first_characters, _last_characters))
            return cls(unit, maximum, byte_length, first, last)
        last = partial(_most_tokens, count=count, take=_last_characters)
        return cls(unit, maximum, count, partial(first_tokens, count=count), last)

    def holds(self, text: str, maximum: int | None = None) -> bool:
        """Whether a text is within the limit, or within another maximum."""
        most = self.maximum if maximum is None else maximum
        return _within_tokens(text, most, self.measure) if self.unit == "tokens" else self.measure(text) <= most


Split = Callable[[UnitLimit, int], tuple[int, int]]
"""`split(limit, budget)`: how much of the budget the head gets, and how much the tail."""


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


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def line_count(text: str) -> int:
    """Number of lines: the line feeds, plus a last line without one. All of contextstash counts lines this way."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


def line_list(text: str) -> list[str]:
    """The lines with their line feeds; joined, they are the text."""
    lines = [f"{line}\n" for line in text.split("\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def first_lines(text: str, most: int) -> str:
    """The first `most` lines."""
    end = 0
    for _ in range(most):
        end = text.find("\n", end) + 1
        if not end:
            return text
    return text[:end]


def last_lines(text: str, most: int) -> str:
    """The last `most` lines."""
    if most <= 0:
        return ""
    start = len(text) - text.endswith("\n")
    for _ in range(most):
        start = text.rfind("\n", 0, start)
        if start < 0:
            return text
    return text[start + 1 :]


def first_tokens(text: str, most: int, count: Count) -> str:
    """About the longest start of at most `most` tokens, with at most 16 characters for each."""
    return _most_tokens(text, most, count, _first_characters)


def _first_characters(text: str, most: int) -> str:
    end = max(0, most)
    return text[: end - is_pair(text, end)]


def _last_characters(text: str, most: int) -> str:
    start = max(0, len(text) - max(0, most))
    return text[start + is_pair(text, start) :]


def _most_bytes(text: str, most: int, take: Take) -> str:
    if text.isascii():
        return take(text, most)
    sizes = range(1, min(len(text), most) + 1)
    return take(text, bisect_right(sizes, most, key=lambda size: byte_length(take(text, size))))


def _within_tokens(text: str, most: int, count: Count) -> bool:
    """Whether a text has at most `most` tokens. Counts nothing of a text far below the limit, and of one far above it
    only a beginning."""
    if MAX_TOKENS_PER_BYTE * byte_length(text) <= most:
        return True
    start = MAX_CHARACTERS_PER_TOKEN * most
    return (len(text) <= 2 * start or count(text[:start]) <= 2 * most) and count(text) <= most


def _most_tokens(text: str, most: int, count: Count, take: Take) -> str:
    if most <= 0:
        return ""
    longest = min(len(text), MAX_CHARACTERS_PER_TOKEN * most)
    low, high = 0, longest + 1
    size = min(longest, 4 * most)  # about what English text has for each token
    for step in range(MAX_COUNTS):
        tokens = count(take(text, size))
        if tokens <= most:
            low = size
        else:
            high = size
        if high - low <= 1 + low // 200 or most * 0.99 < tokens <= most:
            break
        size = size * most // max(1, tokens)
        # Scaling by the last count is fast on even text; every third step halves, so that no text is slow.
        if not low < size < high or step % 3 == 2:
            size = (low + high) // 2
    return take(text, low)


def is_pair(text: str, index: int) -> bool:
    """Whether this index splits a surrogate pair that is kept as two characters."""
    return 0 < index < len(text) and "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"
