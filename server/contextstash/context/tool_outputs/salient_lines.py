"""Telling lines: what matters in the middle of a long output: errors and counts; of source code, definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from contextstash.context.text.sanitize import one_line
from contextstash.context.tool_outputs.classifiers import DEFINITION
from contextstash.context.tool_outputs.measures import Gauge

WORDS = (
    "error", "fail", "fatal", "exception", "panic", "traceback", "assert", "denied", "refused", "not found", "no such",
    "undefined", "unexpected", "cannot", "warning", "critical", "timed out", "killed", "passed", "summary", "total",
    "result", "exit", "错误", "失败", "エラー",
)  # fmt: skip
"""What a telling line holds at least one of, in lower case."""

MAX_HITS = 2_000
"""How often each word is looked at from the start of an output; as many lines again from its end."""

MAX_LINES = 100
MAX_MENTIONS = 8
"""How many lines are shown that only mention a word, as source code does."""

MAX_LENGTH = 200
"""Characters of a line that are shown."""

BEFORE = 80
"""Characters before the word that are shown of a line in which it stands far behind."""

REACH = 1_000
"""How far around a word its line is looked for, and how far apart two finds in one line are, in characters."""

MIN_DEFINITIONS = 3
"""With so many at its start an output is taken for source code, whose errors are none."""

SOURCE_START = 8_000
SOURCE_SCANNED = 1_000_000
"""Characters of source code in which definitions are looked for."""

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
"""A line number that the tool itself wrote before a line."""


@dataclass(frozen=True, slots=True)
class TellingLine:
    """A line that matters. `rank` is 0 for counts, 1 for errors and outer definitions, 2 for warnings and inner
    definitions, 3 for mentions; `number` counts from 1; `start` and `end` are its place in the output; `times` is how
    many lines are like it but for numbers; `has_number` tells that the tool has written one before it."""

    rank: int
    number: int
    start: int
    end: int
    text: str
    times: int = 1
    has_number: bool = False

    @property
    def shown(self) -> str:
        """The line behind its number, its own one if it has one."""
        number = "" if self.has_number else f"{self.number}: "
        return f"{number}{self.text}" + (f" (and {self.times - 1:,} like it)" if self.times > 1 else "")


def telling_lines(text: str) -> list[TellingLine]:
    """The lines that matter, the most telling first: counts from the last on, all else from the first on. Of lines
    that differ in numbers alone the first counts, of counts the last."""
    if len(DEFINITION.findall(text[:SOURCE_START])) >= MIN_DEFINITIONS:
        return sorted(_definitions(text), key=lambda line: (line.rank, line.start))
    kinds: dict[tuple[int, str], TellingLine] = {}
    for line in _numbered(text, _hits(_folded(text))):
        kind = (line.rank, _NUMBER.sub("#", line.text))
        known = kinds.get(kind)
        if known is None:
            kinds[kind] = line
        else:
            kept = line if line.rank == 0 else known
            kinds[kind] = replace(kept, times=known.times + 1)
    return sorted(kinds.values(), key=lambda line: (line.rank, -line.start if line.rank == 0 else line.start))


def _definitions(text: str) -> Iterator[TellingLine]:
    """The lines that define something. Those that are not indented rank first."""
    number, counted = 1, 0
    for match in DEFINITION.finditer(text[:SOURCE_SCANNED]):
        start = match.start()
        number += text.count("\n", counted, start)
        counted = start
        end = _stretch_end(text, match.end())
        gutter = _GUTTER.match(text, start)
        code = text[gutter.end() if gutter else start]
        yield TellingLine(
            rank=2 if code.isspace() else 1,
            number=number,
            start=start,
            end=end,
            text=one_line(text[start:end], MAX_LENGTH),
            has_number=gutter is not None,
        )


def _folded(text: str) -> str:
    """The text in lower case, every character at its place: İ alone would become two."""
    return text.replace("\u0130", "I").lower()


def _hits(folded: str) -> list[int]:
    """Where telling words stand, at most one place for each word and stretch of a line, in order."""
    found: set[int] = set()
    for word in WORDS:
        place = folded.find(word)
        forward: list[int] = []
        while place >= 0 and len(forward) < MAX_HITS:
            forward.append(place)
            place = folded.find(word, _stretch_end(folded, place))
        found.update(forward)
        if len(forward) == MAX_HITS:
            found.update(_last_hits(folded, word, forward[-1]))
    return sorted(found)


def _last_hits(folded: str, word: str, after: int) -> Iterator[int]:
    place = folded.rfind(word, after + 1)
    for _ in range(MAX_HITS):
        if place < 0:
            return
        yield place
        start = max(folded.rfind("\n", after, place), place - REACH, after + 1)
        place = folded.rfind(word, after + 1, start)


def _stretch_end(text: str, place: int) -> int:
    """Where looking goes on after a hit: behind its line, or after a while within it."""
    end = text.find("\n", place, place + REACH)
    return end if end >= 0 else place + REACH


def _numbered(text: str, hits: Iterable[int]) -> Iterator[TellingLine]:
    """The telling lines among those with hits, each once."""
    number, counted, done = 1, 0, -1
    for hit in hits:
        if hit < done:
            continue
        number += text.count("\n", counted, hit)
        counted = hit
        start = _start(text, hit)
        done = _stretch_end(text, hit)
        shown = one_line(text[start : min(done, start + 2 * REACH)], MAX_LENGTH)
        rank = _rank(shown)
        if rank is not None:
            has_number = _GUTTER.match(text, start) is not None
            yield TellingLine(rank, number, start, min(done, len(text)), shown, has_number=has_number)


def _start(text: str, hit: int) -> int:
    """Where the shown part of a hit's line begins."""
    start = text.rfind("\n", max(0, hit - MAX_LENGTH + BEFORE), hit) + 1
    return start if start or hit < MAX_LENGTH - BEFORE else hit - BEFORE


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


def choose(
    lines: Iterable[TellingLine], gauges: Sequence[Gauge], rooms: Sequence[int], start: int, end: int
) -> list[TellingLine]:
    """The most telling of the lines between two places of the text for which there is room, in the text's order."""
    left = list(rooms)
    chosen: list[TellingLine] = []
    mentions = 0
    for line in lines:
        if line.start < start or line.end > end or (line.rank == 3 and mentions == MAX_MENTIONS):
            continue
        cost = [gauge.measure(f"{line.shown}\n{GAP_MARK.format(line.number)}\n") for gauge in gauges]
        if any(price > room for price, room in zip(cost, left, strict=True)):
            continue
        left = [room - price for price, room in zip(cost, left, strict=True)]
        mentions += line.rank == 3
        chosen.append(line)
        if len(chosen) == MAX_LINES:
            break
    return sorted(chosen, key=lambda line: line.start)


def written(lines: Sequence[TellingLine], after: int) -> str:
    """The lines with a mark for each gap between them; `after` is the number of the last line shown before them."""
    rows: list[str] = []
    for line in lines:
        gap = line.number - after - 1
        if gap > 0:
            rows.append(GAP_MARK.format(gap) if gap > 1 else "…")
        rows.append(line.shown)
        after = line.number
    return "\n".join(rows)
