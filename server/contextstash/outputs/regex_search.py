"""Finds the lines that match a regular expression, within a time limit that holds for any expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.safety.sanitize import one_line
from contextstash_storage.errors import BadInputError

MAX_SEARCH_SECONDS = 2.0
"""Time limit for all lines together, divided among them by length; the `regex` module enforces it. A search that
takes longer ends with an error that says so."""

LINE_COST = 50
"""Fixed cost of a line, in characters: each line gets the time for these in addition to its own length."""

MAX_RETRIES, RETRY_SECONDS = 200, 0.01
"""How many lines may exceed their share of the time and are matched again, and for how long: the operating system
interrupts any process now and then."""

MAX_RETRIED_SHARE_SECONDS = 0.25
"""A line with a longer share than this was not merely interrupted; it is not matched again, or one long line could take
twice its time."""

MAX_PATTERN_LENGTH = 1_000
"""In characters. A longer pattern is refused; models write shorter ones by hand."""


def matching_lines(lines: Sequence[str], first: int, pattern: str) -> list[tuple[int, tuple[int, int]]]:
    """The indexes, from `first` on, of the lines that contain the pattern, and its position in each.

    A line is matched without its line feed. Raises BadInputError if the pattern is empty, too long, invalid or takes
    too long.
    """
    search = _Search(pattern, sum(map(len, lines)) + LINE_COST * len(lines))
    found: list[tuple[int, tuple[int, int]]] = []
    try:
        for index in range(first, len(lines)):
            span = search.span(lines[index].removesuffix("\n").removesuffix("\r"))
            if span:
                found.append((index, span))
    except (TimeoutError, MemoryError, RecursionError) as error:
        raise BadInputError(
            "pattern takes too long on this output: pass a simpler one, without nested repeats such as (a+)+."
        ) from error
    return found


class _Search:
    def __init__(self, pattern: str, size: int) -> None:
        self._compiled = _compiled(pattern)
        self._seconds_each = MAX_SEARCH_SECONDS / max(1, size)
        self._retries = MAX_RETRIES

    def span(self, line: str) -> tuple[int, int] | None:
        """The position of the pattern in the line, None if it does not match. Raises TimeoutError."""
        seconds = self._seconds_each * (len(line) + LINE_COST)
        try:
            match = self._compiled.search(line, timeout=seconds)
        except TimeoutError:
            self._retries -= 1
            if self._retries < 0 or seconds > MAX_RETRIED_SHARE_SECONDS:
                raise
            match = self._compiled.search(line, timeout=max(seconds, RETRY_SECONDS))
        return match.span() if match else None


def _compiled(pattern: str) -> Any:
    import regex  # type: ignore[import-untyped]

    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        raise BadInputError(f"pattern must have 1 to {MAX_PATTERN_LENGTH:,} characters.")
    try:
        return regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, ValueError) as error:
        raise BadInputError(
            f"pattern is not a regular expression: {one_line(str(error), 120)}. "
            f"To search for it as plain text, pass {one_line(regex.escape(pattern), 200)}"
        ) from error
