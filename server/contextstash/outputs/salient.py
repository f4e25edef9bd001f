"""Salient lines: what is worth showing of the middle of a long output: errors and counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from contextstash.outputs.measures import UnitLimit
from contextstash.safety.sanitize import folded, one_line

WORDS = (
    "error", "fail", "fatal", "exception", "panic", "traceback", "assert", "denied", "refused", "not found", "no such",
    "undefined", "unexpected", "cannot", "warning", "critical", "timed out", "killed", "passed", "summary", "total",
    "result", "exit", "错误", "失败", "エラー",
)  # fmt: skip
"""In lower case; a line without any of them is never salient. Looking for words is cheaper than matching the patterns
below against each line."""

MAX_SCANNED = 20_000
"""Lines that are looked at from the start of an output, and as many from its end. It bounds the time."""

STRETCH = 1_000
"""Characters in which a long line is looked at, each as a line."""

STRETCH_OVERLAP = 40
"""Characters that two of them share, so that a word on the border is in one of them."""

MAX_LINES = 100
"""How many salient lines are shown at most; usually the budget is used up before."""

MAX_MENTIONS = 8
"""How many lines are shown that only mention a word, as prose does."""

MAX_LENGTH = 200
"""Characters shown of a line."""

MAX_BEFORE = 80
"""Characters shown before the word, if the word is far from the start of its line."""

GAP_MARK = "… {:,} lines"

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
_RANKS = ((_COUNTS, 0), (_NO_ERROR, None), (_ERROR, 1), (_WARNING, 2), (_MENTION, 3))
"""A line has the rank of the first pattern that finds something in it; without one it is not salient."""

_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")
_GUTTER = re.compile(r"\s{0,8}\d{1,7}(?:→|\t|: )")
"""A line number that the tool itself wrote before a line, as tools that read files do."""


@dataclass(frozen=True, slots=True)
class SalientLine:
    """A line worth showing. `rank` is 0 for counts, 1 for errors, 2 for warnings, 3 for mentions; `number` counts from
    1; `start` and `end` are its place in the output; `shown` is its text, after its number unless the tool wrote one;
    `times` is how many lines differ from it in numbers only."""

    rank: int
    number: int
    start: int
    end: int
    shown: str
    times: int = 1

    def __str__(self) -> str:
        return self.shown + (f" (and {self.times - 1:,} like it)" if self.times > 1 else "")


def salient_lines(text: str) -> list[SalientLine]:
    """The salient lines by rank: counts from the last to the first, all others from the first to the last. Of lines
    that differ in numbers only the first is returned, of counts the last."""
    kinds: dict[tuple[int, str], SalientLine] = {}
    for line in _telling_lines(text):
        kind = (line.rank, _NUMBER.sub("#", line.shown))
        known = kinds.get(kind)
        kept = line if known is None or line.rank == 0 else known
        kinds[kind] = replace(kept, times=1 if known is None else known.times + 1)
    return sorted(kinds.values(), key=lambda line: (line.rank, -line.start if line.rank == 0 else line.start))


def _telling_lines(text: str) -> Iterator[SalientLine]:
    """The lines that have a rank."""
    lower = folded(text)
    for number, start, end in _stretches(text):
        hits = [place for word in WORDS if (place := lower.find(word, start, end)) >= 0]
        if not hits:
            continue
        begin = start if min(hits) - start <= MAX_LENGTH - MAX_BEFORE else min(hits) - MAX_BEFORE
        shown = one_line(text[begin:end], MAX_LENGTH)
        rank = next((rank for pattern, rank in _RANKS if pattern.search(shown)), None)
        if rank is not None:
            yield _line(text, rank, number, start, end, begin)


def _stretches(text: str) -> Iterator[tuple[int, int, int]]:
    """Number, start and end of the lines at the start and at the end of a text, of long lines in parts."""
    number, start = 1, 0
    total = text.count("\n") + 1
    while start < len(text):
        if number == MAX_SCANNED and total - number > MAX_SCANNED:
            start = _start_of_last(text, MAX_SCANNED)
            number = total - text.count("\n", start)
        end = text.find("\n", start)
        end = end if end >= 0 else len(text)
        for begin in range(start, max(end, start + 1), STRETCH):
            yield number, begin, min(end, begin + STRETCH + STRETCH_OVERLAP)
        number, start = number + 1, end + 1


def _start_of_last(text: str, lines: int) -> int:
    place = len(text)
    for _ in range(lines):
        place = text.rfind("\n", 0, place)
    return place + 1


def _line(text: str, rank: int, number: int, start: int, end: int, begin: int) -> SalientLine:
    prefix = "" if _GUTTER.match(text, start) else f"{number}: "
    return SalientLine(rank, number, start, end, prefix + one_line(text[begin:end], MAX_LENGTH))


def select(
    lines: Iterable[SalientLine], limits: Sequence[UnitLimit], budgets: Sequence[int], start: int, end: int
) -> list[SalientLine]:
    """The lines between two positions of the text that fit the budgets, chosen by rank, in the text's order."""
    left = list(budgets)
    selected: list[SalientLine] = []
    mentions = 0
    for line in lines:
        if line.start < start or line.end > end or (line.rank == 3 and mentions == MAX_MENTIONS):
            continue
        cost = [limit.measure(f"{line}\n{GAP_MARK.format(line.number)}\n") for limit in limits]
        if any(price > budget for price, budget in zip(cost, left, strict=True)):
            continue
        left = [budget - price for price, budget in zip(cost, left, strict=True)]
        mentions += line.rank == 3
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
