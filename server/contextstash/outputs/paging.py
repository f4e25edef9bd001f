"""Pages of a text: each has a limit in tokens, and all of them joined are the text; or only the lines that match.

Offsets: `offset` counts lines from 1, or from the end if it is negative; only a line feed ends a line. A line too
long for one page is split by characters, and its rest has a larger number, the *inner offset*: column * base + line.
The base is the smallest power of ten above the number of lines, at least 1,000,000. A reader passes `next_offset` as
the next `offset`. It stays valid whatever the other arguments are, because the text of a handle never changes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from contextstash.outputs.counts import counted
from contextstash.outputs.measures import Count, UnitLimit, is_pair, line_list
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


CONTEXT_LINES = 2
"""Lines shown before and after each matching line: enough to recognize a statement or a log entry."""

MAX_LINE_SHOWN = 400
"""Longest part of a line that is shown for a match, in characters, so that a minified file does not fill the
page with one line."""


@dataclass(frozen=True, slots=True)
class Page:
    """`text` has at most `max_tokens` tokens. `next_offset` is None at the end. `note` describes which part this is,
    None if it is the whole text."""

    text: str
    total_lines: int
    total_tokens: int
    next_offset: int | None = None
    note: str | None = None


def page(
    text: str,
    *,
    offset: int | None = None,
    limit: int | None = None,
    pattern: str | None = None,
    max_tokens: int,
    count: Count,
    total_tokens: int | None = None,
) -> Page:
    """One page of `text` from `offset` on, of at most `limit` lines (with `pattern`: matching lines).

    Without a pattern, all pages joined are exactly the text. With one (a regular expression, matched against each
    line), the matching lines are shown with their numbers and two lines of context. Pass `total_tokens` if it is
    known, so that the text is not counted again. Raises BadInputError if the offset is past the end, the limit is
    below 1, the pattern is invalid or takes too long, or `max_tokens` is too small for one character.
    """
    if limit is not None and limit < 1:
        raise BadInputError("limit must be 1 or more.")
    lines = line_list(text)
    total = count(text) if total_tokens is None else total_tokens
    if not lines:
        return Page("", 0, total, note="The output is empty.")
    line, column = _address(offset, lines)
    fit = _Fit(max_tokens, count)
    if pattern is not None:
        return _matches(lines, line, limit, pattern, fit, total)
    return _plain(lines, line, column, limit, fit, total)


def _base(lines: int) -> int:
    # At least a million, so that an inner offset is never mistaken for a line number in a text of usual length.
    return int(10 ** max(6, len(str(lines))))


def _address(offset: int | None, lines: Sequence[str]) -> tuple[int, int]:
    """The index of the line, from 0, and the column in it."""
    if offset is None or offset == 0:
        return 0, 0
    if offset < 0:
        return max(0, len(lines) + offset), 0
    column, line = divmod(offset, _base(len(lines)))
    if not 1 <= line <= len(lines) or (column and column >= len(lines[line - 1])):
        raise BadInputError(
            f"offset {offset} is past the end: the output has {len(lines):,} lines. "
            "Pass a line number from 1, a negative number to count from the end, or the next_offset of an earlier page."
        )
    return line - 1, column


@dataclass(frozen=True, slots=True)
class _Fit:
    max_tokens: int
    count: Count

    def holds(self, text: str) -> bool:
        return self.count(text) <= self.max_tokens

    def start(self, text: str) -> str:
        """About the longest start of the text that fits."""
        return UnitLimit("tokens", self.max_tokens, self.count).longest(text, self.max_tokens)

    def most(self, pieces: Sequence[str], joiner: str = "") -> int:
        """About how many of the first pieces fit when joined."""
        room = len(self.start(joiner.join(pieces)))
        ends = list(accumulate(len(piece) + len(joiner) for piece in pieces))
        number = bisect_right(ends, room + len(joiner))
        # Token counts are not monotonic: a shorter text may have more tokens.
        while number and not self.holds(joiner.join(pieces[:number])):
            number -= 1
        return number

    def characters(self, text: str) -> str:
        """About the longest start of the text that fits, at least one character; never splits a surrogate pair."""
        shown = self.start(text) or text[: 1 + is_pair(text, 1)]
        if not self.holds(shown):
            raise BadInputError(f"max_tokens {self.max_tokens} is too small to show anything: pass 50 or more.")
        return shown


def _plain(lines: list[str], line: int, column: int, limit: int | None, fit: _Fit, total: int) -> Page:
    wanted = lines[line : len(lines) if limit is None else line + limit]
    wanted[0] = wanted[0][column:]
    number = fit.most(wanted)
    if number == 0:
        return _part_of_line(lines, line, column, fit, total)
    after = line + number
    following = after + 1 if after < len(lines) else None
    note = None
    if following or line or column:
        note = f"Lines {line + 1:,} to {after:,} of {len(lines):,}."
        note += f" The rest from offset {following}." if following else " This is the end."
    return Page("".join(wanted[:number]), len(lines), total, following, note)


def _part_of_line(lines: Sequence[str], line: int, column: int, fit: _Fit, total: int) -> Page:
    whole = lines[line]
    shown = fit.characters(whole[column:])
    end = column + len(shown)
    if end < len(whole):
        following: int | None = end * _base(len(lines)) + line + 1
    else:
        following = line + 2 if line + 1 < len(lines) else None
    note = (
        f"Characters {column + 1:,} to {end:,} of the {len(whole):,} of line {line + 1:,}"
        f" (of {len(lines):,} lines), which is too long for one page."
    )
    note += f" The rest from offset {following}." if following else " This is the end."
    return Page(shown, len(lines), total, following, note)


@dataclass(frozen=True, slots=True)
class _Row:
    """A line of the result of a search. `line` is its index; `match` is false for a line of context."""

    line: int
    match: bool
    text: str


def _matches(lines: list[str], first: int, limit: int | None, pattern: str, fit: _Fit, total: int) -> Page:
    found = matching_lines(lines, first, pattern)
    if not found:
        where = f"from line {first + 1:,} on" if first else f"in {counted(len(lines), 'line')}"
        note = (
            f"Nothing {where} matches {one_line(pattern, 80)}."
            " Matching is case-sensitive: begin with (?i) if case may differ."
        )
        return Page("", len(lines), total, note=note)
    spans = dict(found if limit is None else found[:limit])
    width = min(MAX_LINE_SHOWN, max(20, 2 * fit.max_tokens))
    rows = _rows(lines, first, spans, width)
    number = fit.most([row.text for row in rows], "\n")
    shown = rows[:number]
    if not any(row.match for row in shown):
        row = next(row for row in rows if row.match)
        shown = [_Row(row.line, True, fit.characters(row.text))]
    last = max(row.line for row in shown if row.match)
    following = next((line + 1 for line, _ in found if line > last), None)
    matches = sum(row.match for row in shown)
    note = f"{matches:,} of {len(found):,} matching lines" + (f" from line {first + 1:,} on." if first else ".")
    note += f" The rest from offset {following}." if following else ""
    body = "\n".join(row.text for row in shown)
    return Page(body, len(lines), total, following, note)


def _rows(lines: Sequence[str], first: int, spans: dict[int, tuple[int, int]], width: int) -> list[_Row]:
    """Matching lines with their context; a line of two dashes marks each gap, as in grep's output."""
    around = {
        near
        for line in spans
        for near in range(max(first, line - CONTEXT_LINES), min(len(lines), line + CONTEXT_LINES + 1))
    }
    rows: list[_Row] = []
    before = None
    for line in sorted(around):
        gap = "--\n" if before is not None and line != before + 1 else ""
        before = line
        start, end = spans.get(line, (0, 0))
        sign = ":" if line in spans else "-"
        shown = _window(lines[line].rstrip(), start, end, width)
        rows.append(_Row(line, line in spans, f"{gap}{line + 1}{sign}{shown}"))
    return rows


def _window(line: str, start: int, end: int, width: int) -> str:
    """The part of a long line around its match."""
    if len(line) <= width:
        return line
    begin = max(0, min(start - max(0, width - (end - start)) // 2, len(line) - width))
    return ("…" if begin else "") + line[begin : begin + width] + ("…" if begin + width < len(line) else "")
