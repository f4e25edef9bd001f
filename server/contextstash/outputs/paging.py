"""Parts of a text: pages, each with a limit in tokens, all of which joined are the text; matching lines; snippets.

Offsets: `offset` counts lines from 1, or from the end if it is negative; only a line feed ends a line. A line too
long for one page is split by characters, and its rest has a larger number: column * base + line. The base is the
smallest power of ten above the number of lines, at least 1,000,000. A reader passes `next_offset` as the next `offset`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash.outputs.limits import Count, UnitLimit, is_pair, line_list
from contextstash.safety.sanitize import counted, folded, one_line
from contextstash_storage.errors import BadInputError

MAX_SEARCH_SECONDS, LINE_COST = 2.0, 50
"""Time limit for all lines together, divided among them by length, and for each as if it had so many characters more;
the `regex` module enforces it."""

MAX_SLOW_LINES, SLOW_SECONDS = 20, 0.1
"""How many lines may exceed their share of the time, and what each of them gets then: the operating system interrupts
any process now and then."""

MAX_PATTERN_LENGTH, CONTEXT_LINES, MAX_LINE_SHOWN = 1_000, 2, 400
"""Characters of a pattern; lines shown before and after each matching line, as many as a statement has; and characters
of a part of a line, so that a minified file does not fill the page."""


@dataclass(frozen=True, slots=True)
class Page:
    """`text` has at most `max_tokens` tokens. `next_offset` is None at the end. `note` describes which part this is,
    None if it is the whole text."""

    text: str
    total_lines: int
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
) -> Page:
    """One page of `text` from `offset` on, of at most `limit` lines (with `pattern`: matching lines).

    Without a pattern, all pages joined are exactly the text. With one (a regular expression, matched against each
    line), the matching lines are shown with their numbers and two lines of context. Raises BadInputError if the offset
    is past the end, the limit is below 1, the pattern is invalid or takes too long, or `max_tokens` is too small for
    one character.
    """
    if limit is not None and limit < 1:
        raise BadInputError("limit must be 1 or more.")
    lines = line_list(text)
    if not lines:
        return Page("", 0, note="The output is empty.")
    line, column = _address(offset, lines)
    fit = UnitLimit("tokens", max_tokens, count)
    if pattern is not None:
        return _matches(lines, line, limit, pattern, fit)
    return _plain(lines, line, column, limit, fit)


def _base(lines: int) -> int:
    # At least a million, so that a place in a line is never mistaken for a line number in a text of usual length.
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


def _longest(text: str, fit: UnitLimit) -> str:
    """About the longest start of the text that fits, at least one character. Raises BadInputError if none does."""
    shown = fit.longest(text, fit.maximum) or text[: 1 + is_pair(text, 1)]
    if not fit.holds(shown):
        raise BadInputError(f"max_tokens {fit.maximum} is too small to show anything: pass 50 or more.")
    return shown


def _plain(lines: list[str], line: int, column: int, limit: int | None, fit: UnitLimit) -> Page:
    wanted = "".join(lines[line : None if limit is None else line + limit])[column:]
    shown = _longest(wanted, fit)
    whole_lines = shown[: shown.rfind("\n") + 1]
    if len(shown) < len(wanted) and whole_lines and fit.holds(whole_lines):
        shown = whole_lines
    last = line + shown.removesuffix("\n").count("\n")
    end = len(shown) - shown.rfind("\n") - 1 + (column if "\n" not in shown else 0)
    if end < len(lines[last]) and not shown.endswith("\n"):
        following: int | None = end * _base(len(lines)) + last + 1
        part = f" up to character {end:,} of line {last + 1:,}, which is too long for one page"
    else:
        following, part = last + 2 if last + 1 < len(lines) else None, ""
    note = None
    if following or line or column:
        note = f"Lines {line + 1:,} to {last + 1:,} of {len(lines):,}{part}."
        note += f" The rest from offset {following}." if following else " This is the end."
    return Page(shown, len(lines), following, note)


def _matching_lines(lines: Sequence[str], first: int, pattern: str) -> list[tuple[int, tuple[int, int]]]:
    """The indexes, from `first` on, of the lines that contain the pattern, and its position in each.

    A line is matched without its line feed. Raises BadInputError if the pattern is empty, too long, invalid or takes
    too long.
    """
    import regex  # type: ignore[import-untyped]

    if not pattern or len(pattern) > MAX_PATTERN_LENGTH:
        raise BadInputError(f"pattern must have 1 to {MAX_PATTERN_LENGTH:,} characters.")
    try:
        compiled = regex.compile(pattern)
    except (regex.error, RecursionError, OverflowError, ValueError) as error:
        raise BadInputError(
            f"pattern is not a regular expression: {one_line(str(error), 120)}. "
            f"To search for it as plain text, pass {one_line(regex.escape(pattern), 200)}"
        ) from error
    seconds_each = MAX_SEARCH_SECONDS / (sum(map(len, lines)) + LINE_COST * len(lines))
    found: list[tuple[int, tuple[int, int]]] = []
    slow = 0
    try:
        for index in range(first, len(lines)):
            line = lines[index].removesuffix("\n").removesuffix("\r")
            try:
                match = compiled.search(line, timeout=seconds_each * (len(line) + LINE_COST))
            except TimeoutError:
                slow += 1
                if slow > MAX_SLOW_LINES:
                    raise
                match = compiled.search(line, timeout=SLOW_SECONDS)
            if match:
                found.append((index, match.span()))
    except (TimeoutError, MemoryError, RecursionError) as error:
        raise BadInputError(
            "pattern takes too long on this output: pass a simpler one, without nested repeats such as (a+)+."
        ) from error
    return found


def _matches(lines: list[str], first: int, limit: int | None, pattern: str, fit: UnitLimit) -> Page:
    found = _matching_lines(lines, first, pattern)
    if not found:
        where = f"from line {first + 1:,} on" if first else f"in {counted(len(lines), 'line')}"
        note = (
            f"Nothing {where} matches {one_line(pattern, 80)}."
            " Matching is case-sensitive: begin with (?i) if case may differ."
        )
        return Page("", len(lines), note=note)
    spans = dict(found if limit is None else found[:limit])
    rows = _rows(lines, first, spans, min(MAX_LINE_SHOWN, max(20, 2 * fit.maximum)))
    whole = "\n".join(text for _, text in rows)
    longest = _longest(whole, fit)
    number = len(rows) if longest == whole else longest.count("\n")
    while number and not fit.holds("\n".join(text for _, text in rows[:number])):
        number -= 1  # a shorter text may have more tokens
    shown = rows[:number]
    if not any(line in spans for line, _ in shown):
        line, text = next((line, text) for line, text in rows if line in spans)
        shown = [(line, _longest(text, fit))]
    matches = [line for line, _ in shown if line in spans]
    following = next((line + 1 for line, _ in found if line > matches[-1]), None)
    note = f"{len(matches):,} of {len(found):,} matching lines" + (f" from line {first + 1:,} on." if first else ".")
    note += f" The rest from offset {following}." if following else ""
    return Page("\n".join(text for _, text in shown), len(lines), following, note)


def _rows(lines: Sequence[str], first: int, spans: dict[int, tuple[int, int]], width: int) -> list[tuple[int, str]]:
    """Matching lines with their context, by their indexes; two dashes (of index -1) mark each gap, as grep's do."""
    around = {near for line in spans for near in range(line - CONTEXT_LINES, line + CONTEXT_LINES + 1)}
    rows: list[tuple[int, str]] = []
    for line in sorted(around.intersection(range(first, len(lines)))):
        if rows and rows[-1][0] != line - 1:
            rows.append((-1, "--"))
        shown, (start, end) = lines[line].rstrip(), spans.get(line, (0, 0))
        if len(shown) > width:  # the part around the match
            begin = max(0, min(start - max(0, width - (end - start)) // 2, len(shown) - width))
            part, more = shown[begin : begin + width], begin + width < len(shown)
            shown = f"{'…' * (begin > 0)}{part}{'…' * more}"
        rows.append((line, f"{line + 1}{':' if line in spans else '-'}{shown}"))
    return rows


MAX_OCCURRENCES, MAX_WORDS = 500, 20
"""Occurrences of one term that are considered, and words of a term that does not occur that are searched for: a path
has fewer. They bound the work."""

_WORD = re.compile(r"\w+")
_STEM = re.compile(r"([A-Za-z]{4,}?)(?:ations?|ings?|edly|i?ed|i?es|ly|s|e)")


def snippet(text: str, terms: Sequence[str], max_chars: int = 240) -> tuple[str, list[str]]:
    """The part with the most terms, as one line of at most `max_chars` characters; and the terms that occur
    anywhere in the text, as they were passed.

    A term is searched for as it is and, if that is not found, word by word (then those words of it that occur are
    returned); an English word also by its stem. If no term occurs, the snippet is the start of the text.
    """
    lower = folded(text)
    found: dict[str, list[int]] = {}
    for term in dict.fromkeys(terms):
        found |= _places(text, lower, term)
    # Three quarters of the width, so that an eighth on each side is left for the words around the matches.
    reach = max(1, max_chars * 3 // 4)

    def told(start: int) -> int:
        """How many of the terms are there."""
        end = start + reach
        return sum(bisect_left(at, start) < bisect_right(at, end) for at in found.values())

    best = max(sorted({place for places in found.values() for place in places}), key=told, default=0)
    return _cut(text, max(0, best - max_chars // 8), max_chars), [*found]


def _places(text: str, lower: str, term: str) -> dict[str, list[int]]:
    """Where a term occurs, or if it does not, where each word of it does that occurs."""
    bare = term.strip("\"'`*()[]{},;:")
    if not bare:
        return {}
    whole = _find(text, lower, bare)
    if whole:
        return {term: whole}
    words = _WORD.findall(bare)[:MAX_WORDS]
    stems = {word: stem[1] if (stem := _STEM.fullmatch(word)) else word for word in words}
    found = {term if word == bare else word: _find(text, lower, stems[word]) for word in words}
    return {word: places for word, places in found.items() if places}


def _find(text: str, lower: str, word: str) -> list[int]:
    """The first positions of a word. One that begins with a letter or digit counts only at the start of a word, also of
    one inside a camelCase name: the index has these too."""
    at_start = word[0].isascii() and word[0].isalnum()
    # str.find is forty times faster than a case-insensitive pattern, with which 60 words in 5 MB took a minute
    wanted = folded(word)
    found: list[int] = []
    place = lower.find(wanted)
    while place >= 0 and len(found) < MAX_OCCURRENCES:
        is_inside = at_start and place and lower[place - 1].isalnum()
        if not is_inside or (text[place].isupper() and not text[place - 1].isupper()):
            found.append(place)
            place += len(wanted) - 1
        place = lower.find(wanted, place + 1)
    return found


def _cut(text: str, start: int, width: int) -> str:
    """The part from about there on, as one line of at most so many characters."""
    if start:
        space = re.search(r"\s", text[start : start + 24])
        start += space.end() if space and start + space.end() < len(text) else 0
    before, more = "…" if start else "", "…" if start + 4 * width < len(text) else ""
    return one_line(f"{before}{text[start : start + 4 * width].strip()}{more}", width)
