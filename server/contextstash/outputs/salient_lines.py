"""Salient lines: what is worth showing of the middle of a long output: errors and counts; in code, definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from contextstash.outputs.classifiers import DEFINITION
from contextstash.outputs.measures import UnitLimit
from contextstash.safety.sanitize import folded, one_line

WORDS = (
    "error", "fail", "fatal", "exception", "panic", "traceback", "assert", "denied", "refused", "not found", "no such",
    "undefined", "unexpected", "cannot", "warning", "critical", "timed out", "killed", "passed", "summary", "total",
    "result", "exit", "错误", "失败", "エラー",
)  # fmt: skip
"""In lower case; a line without any of them is never salient. Scanning for words first is cheaper than matching the
patterns below against each line."""

MAX_HITS = 2_000
"""How many lines with each word are examined from the start of an output, and as many from its end. It bounds the
time that a huge output takes."""

MAX_LINES = 100
"""How many salient lines are shown at most; usually the budget is used up before."""

MAX_MENTIONS = 8
"""How many lines are shown that only mention a word, as prose does."""

MAX_LENGTH = 200
"""Characters shown of a line."""

MAX_BEFORE = 80
"""Characters shown before the word, if the word is far from the start of its line."""

SEARCH_DISTANCE = 1_000
"""In characters: how far from a word the ends of its line are searched, and how far apart two hits in one line are.
Without it a line of a megabyte would be searched once for each hit in it."""

MIN_DEFINITIONS = 3
"""With this many definitions at its start an output is source code, where "error" is usually a name."""

SOURCE_START = 8_000
"""In how many characters at the start of an output these definitions are counted."""

MAX_SOURCE_SCANNED = 1_000_000
"""Characters of source code in which definitions are searched; it bounds the time."""

GAP_MARK = "… {:,} lines"

_COUNTS = re.compile(
    r"\b\d[\d,]* (?:passed|failed|failing|errors?|warnings?|failures|tests?|problems?|vulnerabilities)\b"
    r"|^\W*(?:test result|tests?|total|summary|results?|build)\b ?:"
    r"|\bexit(?:ed)?(?: with)? (?:code|status)\b|\b(?:build|tests?|job) (?:failed|succeeded)\b",
    re.IGNORECASE,
)
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
_NO_ERROR = re.compile(r"\b(?:0|no|without) (?:errors?|failed|failures|warnings?)\b", re.IGNORECASE)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


_GUTTER = re.compile(r"\s{0,8}\d{1,7}(?:→|\t|: )")
"""A line number that the tool itself wrote before a line, as tools that read files do."""


@dataclass(frozen=True, slots=True)
class SalientLine:
    """A line worth showing. `rank` is 0 for counts, 1 for errors and outer definitions, 2 for warnings and inner
    definitions, 3 for mentions; `number` counts from 1; `start` and `end` are its place in the output; `times` is how
    many lines differ from it in numbers only; `has_number` is true if the tool wrote a line number before it."""

    rank: int
    number: int
    start: int
    end: int
    text: str
    times: int = 1
    has_number: bool = False

    @property
    def shown(self) -> str:
        """The line after its number: the one that the tool wrote, if it wrote one."""
        number = "" if self.has_number else f"{self.number}: "
        return f"{number}{self.text}" + (f" (and {self.times - 1:,} like it)" if self.times > 1 else "")


def salient_lines(text: str) -> list[SalientLine]:
    """The salient lines by rank: counts from the last to the first, all others from the first to the last. Of lines
    that differ in numbers only the first is returned, of counts the last."""
    if len(DEFINITION.findall(text[:SOURCE_START])) >= MIN_DEFINITIONS:
        return sorted(_definitions(text), key=lambda line: (line.rank, line.start))
    kinds: dict[tuple[int, str], SalientLine] = {}
    for line in _numbered(text, _hits(folded(text))):
        kind = (line.rank, _NUMBER.sub("#", line.text))
        known = kinds.get(kind)
        if known is None:
            kinds[kind] = line
        else:
            kept = line if line.rank == 0 else known
            kinds[kind] = replace(kept, times=known.times + 1)
    return sorted(kinds.values(), key=lambda line: (line.rank, -line.start if line.rank == 0 else line.start))


def _definitions(text: str) -> Iterator[SalientLine]:
    """The lines that define something; those without indentation rank first."""
    number, counted = 1, 0
    for match in DEFINITION.finditer(text[:MAX_SOURCE_SCANNED]):
        start = match.start()
        number += text.count("\n", counted, start)
        counted = start
        end = _stretch_end(text, match.end())
        gutter = _GUTTER.match(text, start)
        code = text[gutter.end() if gutter else start]
        yield SalientLine(
            rank=2 if code.isspace() else 1,
            number=number,
            start=start,
            end=end,
            text=one_line(text[start:end], MAX_LENGTH),
            has_number=gutter is not None,
        )


def _hits(lower: str) -> list[int]:
    """The positions of `WORDS`, in order; at most one for each word and stretch of a line."""
    found: set[int] = set()
    for word in WORDS:
        place = lower.find(word)
        forward: list[int] = []
        while place >= 0 and len(forward) < MAX_HITS:
            forward.append(place)
            place = lower.find(word, _stretch_end(lower, place))
        found.update(forward)
        if len(forward) == MAX_HITS:
            found.update(_last_hits(lower, word, forward[-1]))
    return sorted(found)


def _last_hits(lower: str, word: str, after: int) -> Iterator[int]:
    place = lower.rfind(word, after + 1)
    for _ in range(MAX_HITS):
        if place < 0:
            return
        yield place
        start = max(lower.rfind("\n", after, place), place - SEARCH_DISTANCE, after + 1)
        place = lower.rfind(word, after + 1, start)


def _stretch_end(text: str, place: int) -> int:
    """Where the search continues after a hit: after its line, or `SEARCH_DISTANCE` later within it."""
    end = text.find("\n", place, place + SEARCH_DISTANCE)
    return end if end >= 0 else place + SEARCH_DISTANCE


def _numbered(text: str, hits: Iterable[int]) -> Iterator[SalientLine]:
    """The salient lines among those with hits, each once."""
    number, counted, done = 1, 0, -1
    for hit in hits:
        if hit < done:
            continue
        number += text.count("\n", counted, hit)
        counted = hit
        start = _start(text, hit)
        done = _stretch_end(text, hit)
        shown = one_line(text[start : min(done, start + 2 * SEARCH_DISTANCE)], MAX_LENGTH)
        rank = _rank(shown)
        if rank is not None:
            has_number = _GUTTER.match(text, start) is not None
            yield SalientLine(rank, number, start, min(done, len(text)), shown, has_number=has_number)


def _start(text: str, hit: int) -> int:
    """Where the shown part of a hit's line starts."""
    start = text.rfind("\n", max(0, hit - MAX_LENGTH + MAX_BEFORE), hit) + 1
    return start if start or hit < MAX_LENGTH - MAX_BEFORE else hit - MAX_BEFORE


def _rank(line: str) -> int | None:
    if _COUNTS.search(line):
        return 0
    if _NO_ERROR.search(line):
        return None
    if _ERROR.search(line):
        return 1
    if _WARNING.search(line):
        return 2
    return 3 if _MENTION.search(line) else None


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
        cost = [limit.measure(f"{line.shown}\n{GAP_MARK.format(line.number)}\n") for limit in limits]
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
        rows.append(line.shown)
        after = line.number
    return "\n".join(rows)
