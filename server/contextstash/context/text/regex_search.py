"""Which lines match a regular expression, within a bounded time whatever the expression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash.context.text.sanitize import one_line
from contextstash_storage.errors import BadInputError

SEARCH_SECONDS = 2.0
"""What all lines together may take, shared out by length; the matcher itself keeps to it."""

LINE_COST = 50
"""Characters' worth of time that a line gets beside its length."""

SECOND_TRIES, SECOND_TRY_SECONDS = 200, 0.01
"""So many lines may overrun their share, since any process is interrupted now and then."""

LONG_SHARE_SECONDS = 0.25
"""Who overruns so long a share was not just interrupted: no second try, or one long line takes twice its time."""

MAX_PATTERN_LENGTH = 1_000


def matching_lines(lines: Sequence[str], first: int, pattern: str) -> list[tuple[int, tuple[int, int]]]:
    """Indexes, from `first` on, of the lines in which the pattern is found, and where in each.

    The pattern never sees a line's own line feed. Raises BadInputError if it is empty, too long, invalid,
    or takes too long.
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
            "pattern takes too long on this output: pass plainer text, without nested repeats such as (a+)+."
        ) from error
    return found


class _Search:
    def __init__(self, pattern: str, size: int) -> None:
        self._compiled = _compiled(pattern)
        self._seconds_each = SEARCH_SECONDS / max(1, size)
        self._second_tries = SECOND_TRIES

    def span(self, line: str) -> tuple[int, int] | None:
        """Where the pattern is in the line. Raises TimeoutError."""
        seconds = self._seconds_each * (len(line) + LINE_COST)
        try:
            match = self._compiled.search(line, timeout=seconds)
        except TimeoutError:
            self._second_tries -= 1
            if self._second_tries < 0 or seconds > LONG_SHARE_SECONDS:
                raise
            match = self._compiled.search(line, timeout=max(seconds, SECOND_TRY_SECONDS))
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
            f"To look for it as plain text, pass {one_line(regex.escape(pattern), 200)}"
        ) from error
