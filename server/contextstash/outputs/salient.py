"""Salient lines: what is worth showing of the middle of a long output: errors and counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from contextstash.outputs.measures import UnitLimit
from contextstash.safety.sanitize import folded, one_line

MAX_SCANNED = 500_000
"""Characters that are looked at from the start of an output, and as many from its end. It bounds the time."""

MAX_LINES = 100
"""How many salient lines are shown at most; usually the budget is used up before."""

MAX_MENTIONS = 8
"""How many lines are shown that only mention a word, as prose does."""

MAX_LENGTH = 200
"""Characters shown of a line."""

MAX_BEFORE = 80
"""Characters shown before the word, if the word is far from the start of its line."""

GAP_MARK = "… {:,} lines"

_WORDS = re.compile(
    r"error|fail|fatal|exception|panic|traceback|assert|denied|refused|not found|no such|undefined|unexpected|cannot"
    r"|warning|critical|timed out|killed|passed|summary|total|result|exit|错误|失败|エラー"
)
"""In lower case; a line without any of them is never salient. To look for words is cheaper than to match the patterns
below against each line."""

_COUNTS = re.compile(
    r"\b\d[\d,]* (?:passed|failed|failing|errors?|warnings?|failures|tests?|problems?|vulnerabilities)\b"
    r"|^\W*(?:test result|tests?|total|summary|results?|build)\b ?:"
    r"|\bexit(?:ed)?(?: with)? (?:code|status)\b|\b(?:build|tests?|job) (?:failed|succeeded)\b",
    re.IGNORECASE,
)
_NO_ERROR = re.compile(r"\b(?:0|no|without) (?:errors?|failed|failures|warnings?)\b", re.IGNORECASE)
_ERROR = re.compile(
    r"^(?:E {2,}|error\b|fatal\b|panic\b|Traceback \(most recent|FAIL(?:ED)?\b|not ok \d|npm ERR!)"
    r"|\b(?:error|fatal|panic)(?:\[\w{1,12}\])?:|\w(?:Error|Exception)\b(?:: |$)|--- FAIL"
    r"|\b(?:ERROR|FATAL|CRITICAL|FAILED|PANIC)\b"
    r"|[Nn]o such file|[Pp]ermission denied|[Cc]onnection refused|: (?:command )?not found|[Ss]egmentation fault"
    r"|\btimed out\b|\b[Kk]illed\b|\bpanicked at\b|错误|失败|エラー"
)
_WARNING = re.compile(r"\bwarning\b", re.IGNORECASE)
_MENTION = re.compile(
    r"(?<![\w./-])(?:errors?|fail(?:s|ed|ures?|ing)?|fatal|exceptions?|panic(?:ked)?|denied|refused|not found|no such"
    r"|undefined|unexpected|cannot|critical|assertion)(?![\w./(-])",
    re.IGNORECASE,
)
COUNT, ERROR, WARNING, MENTION = range(4)
_RANKS = ((_COUNTS, COUNT), (_NO_ERROR, None), (_ERROR, ERROR), (_WARNING, WARNING), (_MENTION, MENTION))
"""A line has the rank of the first pattern that finds something in it; without one it is not salient."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class SalientLine:
    """A line worth showing, or the part of a long one around a word. `number` counts from 1; `start` and `end` are its
    place in the output; `times` is how many lines differ from it in numbers only."""

    rank: int
    number: int
    start: int
    end: int
    text: str
    times: int = 1

    def __str__(self) -> str:
        return f"{self.number}: {self.text}" + (f" (and {self.times - 1:,} like it)" if self.times > 1 else "")


def salient_lines(text: str) -> list[SalientLine]:
    """The salient lines by rank: counts from the last to the first, all others from the first to the last. Of lines
    that differ in numbers only the first is returned, of counts the last."""
    kinds: dict[tuple[int, str], SalientLine] = {}
    for line in _ranked_lines(text):
        kind = line.rank, _NUMBER.sub("#", line.text)
        known = kinds.get(kind)
        kept = line if known is None or line.rank == COUNT else known
        kinds[kind] = replace(kept, times=known.times + 1 if known else 1)
    return sorted(kinds.values(), key=lambda line: (line.rank, -line.start if line.rank == COUNT else line.start))


def error_line(text: str) -> str:
    """The first line that says an error, else the first that mentions one; empty if there is none."""
    lines = [line for line in _ranked_lines(text) if line.rank in (ERROR, MENTION)]
    found = min(lines, key=lambda line: line.rank, default=None)
    return found.text if found else ""


def _ranked_lines(text: str) -> Iterator[SalientLine]:
    """The lines that have a rank, of long lines the parts."""
    lower = folded(text)
    number, counted = 1, 0
    for begin, end in _scanned(len(text)):
        while found := _WORDS.search(lower, begin, end):
            hit = found.start()
            start = max(text.rfind("\n", begin, hit) + 1, begin)
            if hit - start > MAX_LENGTH - MAX_BEFORE:
                start = hit - MAX_BEFORE
            line_end = text.find("\n", hit)
            stop = min(line_end if line_end >= 0 else len(text), start + 2 * MAX_LENGTH)
            shown = one_line(text[start:stop], MAX_LENGTH)
            number, counted = number + text.count("\n", counted, start), start
            rank = next((rank for pattern, rank in _RANKS if pattern.search(shown)), None)
            if rank is not None:
                yield SalientLine(rank, number, start, stop, shown)
            begin = max(stop, found.end())


def _scanned(length: int) -> list[tuple[int, int]]:
    middle = max(MAX_SCANNED, length - MAX_SCANNED)
    return [(0, min(length, MAX_SCANNED)), (middle, length)]


def select(
    lines: Iterable[SalientLine], limits: Sequence[UnitLimit], budgets: Sequence[int], start: int, end: int
) -> list[SalientLine]:
    """The lines between two positions of the text that fit the budgets, chosen by rank, in the text's order."""
    left = list(budgets)
    selected: list[SalientLine] = []
    mentions = 0
    for line in lines:
        if line.start < start or line.end > end or (line.rank == MENTION and mentions == MAX_MENTIONS):
            continue
        cost = [limit.measure(f"{line}\n{GAP_MARK.format(line.number)}\n") for limit in limits]
        if any(price > budget for price, budget in zip(cost, left, strict=True)):
            continue
        left = [budget - price for price, budget in zip(cost, left, strict=True)]
        mentions += line.rank == MENTION
        selected.append(line)
        if len(selected) == MAX_LINES:
            break
    return sorted(selected, key=lambda line: line.start)


def rendered(lines: Sequence[SalientLine], after: int) -> str:
    """The lines as text, with a mark for each gap; `after` is the number of the last line shown before them."""
    rows: list[str] = []
    for line in lines:
        gap = line.number - after - 1
        if gap > 0:
            rows.append(GAP_MARK.format(gap) if gap > 1 else "…")
        rows.append(str(line))
        after = line.number
    return "\n".join(rows)
