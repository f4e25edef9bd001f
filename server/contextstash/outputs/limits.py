"""Limits on one output: in lines, characters, bytes and tokens, and the excerpt of an output that exceeds them.

An excerpt is a head, a notice and a tail, never cut inside a character; `smart` shows the salient lines between them:
errors and counts. It is made smaller until it is within every limit, and is the head with a brief notice, or without
one, if there is no room for more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from contextstash.safety.sanitize import MARKER, counted, folded, one_line
from contextstash.window.settings import ContextSettings, Cut

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
    """The head and the tail to show of a text that does not fit: cut by each limit in turn to its budget. Those of a
    `smart` cut are whole lines."""
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
    return _whole_lines(first, last) if cut == "smart" else (first, last)


def byte_length(text: str) -> int:
    """Length in UTF-8 bytes; a lone surrogate counts as three."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def line_count(text: str) -> int:
    """Number of lines: the line feeds, plus a last line without one. All of contextstash counts lines this way."""
    return text.count("\n") + (bool(text) and not text.endswith("\n"))


_MEASURES: dict[Unit, Count] = {"lines": line_count, "characters": len, "bytes": byte_length}


def line_list(text: str) -> list[str]:
    """The lines with their line feeds; joined, they are the text."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


def is_pair(text: str, index: int) -> bool:
    """Whether this index splits a surrogate pair that is kept as two characters."""
    return 0 < index < len(text) and "\ud800" <= text[index - 1] <= "\udbff" and "\udc00" <= text[index] <= "\udfff"


def _part(text: str, characters: int, last: bool) -> str:
    """The first or last so many characters of a text; one less if they would split a pair."""
    if last:
        start = len(text) - characters
        return text[start + is_pair(text, start) :]
    return text[: characters - is_pair(text, characters)]


CHARACTERS_PER_TOKEN = 4
"""How many characters the middle-out cut counts as a token: the rule of the preset `token-budget`, whose 2,500 tokens
are 10,000 characters."""

MAX_PREVIEW_CHARACTERS = 2_200
"""Longest excerpt of an output above `spill_chars`, some 200 of them for its notice: about 30 lines, 500 tokens."""

SLACK, MAX_ATTEMPTS = 12, 6
"""How much a notice may grow once its numbers are known, and how often an excerpt is made smaller before a shorter
notice is used: each attempt removes the excess and a quarter more, so that two are usually enough."""

SALIENT_SHARE, MAX_SNAP_SHARE = 0.3, 0.25
"""The shares of the budget that the salient lines may take, and of an end that is given up so that it consists of whole
lines."""

READABLE_TOKENS = 4_000
"""One output may take twice its share of a small window, up to this. Measured with bench/fidelity: with an eighth of
16,000 tokens about ten points fewer of the facts that are needed later stay in view than with a quarter; of 32,000
tokens one point fewer, and an eighth costs 3 to 7 % less, since the window is reduced less often."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """How much of one output is shown at most; None is no limit. Above `spill_chars` characters only a preview is
    shown. `notice` is "within" if the notice of the cut counts towards the limits, "beside" if it is added to them."""

    lines: int | None = None
    chars: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    cut: Cut = "smart"
    spill_chars: int | None = None
    notice: Literal["within", "beside"] = "within"

    @classmethod
    def of(cls, settings: ContextSettings, window: int | None = None) -> OutputLimits:
        """The limits in a session's settings, for a window of so many tokens if it is known."""
        limits = cls(**{field.name: getattr(settings, f"output_{field.name}") for field in fields(cls)})
        if limits.tokens is None or settings.output_share is None or window is None:
            return limits
        share = max(1, int(window * settings.output_share))
        of_window = max(share, min(int(window * min(1, 2 * settings.output_share)), READABLE_TOKENS))
        return replace(limits, tokens=min(limits.tokens, of_window))

    def merged(self, given: Mapping[str, Any] | None) -> OutputLimits:
        """These limits, overridden by those of one call; None removes a limit."""
        return replace(self, **(given or {}))

    def may_cut(self, characters: int, tokens: int) -> bool:
        """Whether a text of that many characters and about that many tokens could exceed a limit. If not, the text
        need not be read."""
        # UTF-8 takes at most four bytes for a character.
        most = {"lines": characters, "characters": characters, "bytes": 4 * characters}
        most["tokens"] = max(tokens + 1, -(-characters // CHARACTERS_PER_TOKEN))
        return any(most[each.unit] > each.maximum for each in self.unit_limits(len))

    def holds(self, text: str, count: Count) -> bool:
        """Whether a text is within all the limits."""
        return all(each.holds(text) for each in self.unit_limits(count))

    def unit_limits(self, count: Count) -> tuple[UnitLimit, ...]:
        """The limits in the order in which they are applied."""
        middle_out = None if self.tokens is None or self.cut != "middle" else CHARACTERS_PER_TOKEN * self.tokens
        maxima: tuple[tuple[Unit, int | None], ...] = (
            ("lines", self.lines),
            ("characters", self.chars),
            ("characters", middle_out),
            ("bytes", self.bytes),
            ("tokens", self.tokens),
            ("characters", self.spill_chars),
        )
        return tuple(UnitLimit(unit, most, _MEASURES.get(unit, count)) for unit, most in maxima if most is not None)


def shared_limit(sizes: Iterable[int], room: int) -> int:
    """The limit of each of several outputs with which all of them take `room` together: small ones stay whole, and the
    others share what these leave."""
    ordered = sorted(sizes)
    for place, size in enumerate(ordered):
        even = room // (len(ordered) - place)
        if size >= even:
            return max(1, even)
        room -= size
    return max([1, *ordered])


def sets_output_limits(layer: Mapping[str, Any]) -> bool:
    """Whether a layer of settings may change the limits of a tool output."""
    return any(name == "preset" or name.startswith("output_") for name in layer)


def limit(text: str, limits: OutputLimits, count: Count, handle: str = "") -> str:
    """The text cut to all the limits: lines first, then characters, bytes and tokens.

    Head and tail are unchanged parts of the text, and end between characters. A notice between them, or behind the
    head, says what was cut, and gives `handle`, under which the whole text is archived. The notice counts towards the
    limits, unless `limits.notice` is "beside". If there is no room for it, a shorter one follows the head, or none.
    """
    units = limits.unit_limits(count)
    cut = limits.cut
    spilled = limits.spill_chars is not None and len(text) > limits.spill_chars
    if spilled:
        units, cut = (*units, UnitLimit("characters", MAX_PREVIEW_CHARACTERS, len)), "head_tail"
    exceeded = [each.unit for each in units if not each.holds(text)]
    if not exceeded:
        return text
    excerpt = _Excerpt(text, units, exceeded[0], f"; whole output: {handle}" if handle else "", spilled)
    if limits.notice == "beside":
        return excerpt.shown([each.maximum for each in units], cut)
    return excerpt.fitted(cut) or excerpt.brief()


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """The excerpt of one text that exceeds its limits. `unit` is that of the first limit that it exceeds; `whole` says
    where all of it is archived, empty if it is not; a `spilled` text is far too large."""

    text: str
    limits: tuple[UnitLimit, ...]
    unit: Unit
    whole: str
    spilled: bool

    def fitted(self, cut: Cut) -> str | None:
        """The excerpt within every limit, its notice included; None if there is no room. It is measured as a whole,
        because the tokens of its pieces do not add up to its own."""
        budgets = [each.maximum for each in self.limits]
        sample = self._notice("", "")
        notice = [each.measure(sample) + SLACK * (each.unit != "lines") for each in self.limits]
        found = salient_lines(self.text) if cut == "smart" else []
        for _ in range(MAX_ATTEMPTS):
            inner = budgets if cut == "middle" else _less(budgets, notice)
            if min(divided(cut, each.unit, budget)[0] for each, budget in zip(self.limits, inner, strict=True)) <= 0:
                return None
            shown = self.shown(inner, cut, found)
            excess = [each.measure(shown) - each.maximum for each in self.limits]
            if max(excess) <= 0:
                return shown
            budgets = [left - (over + over // 4 + 1) * (over > 0) for left, over in zip(budgets, excess, strict=True)]
        return None

    def shown(self, budgets: Sequence[int], cut: Cut, found: Sequence[SalientLine] = ()) -> str:
        """The ends that fit the budgets, and the notice in addition to them, with those of the salient lines between
        them that fit."""
        text, limits = self.text, self.limits
        selected: list[SalientLine] = []
        if found:
            shares = [int(budget * SALIENT_SHARE) for budget in budgets]
            first, last = ends(text, limits, _less(budgets, shares), cut)
            selected = select(found, limits, shares, len(first), len(text) - len(last))
            # What they leave of their share goes to head and tail, which may then include some of them.
            budgets = _less(budgets, [each.measure("\n".join(map(str, selected))) for each in limits])
        first, last = ends(text, limits, budgets, cut)
        end = len(text) - len(last)
        lines = [str(each) for each in selected if len(first) <= each.start < end]
        if lines:
            lines.append(f"{MARKER}: from line {text.count(chr(10), 0, end) + 1:,} on:]")
        notice = self._notice(first, last, "; the relevant lines:" if lines else "")
        first += "\n" if first and not first.endswith("\n") else ""
        return first + "\n".join([notice, *lines, *([last] if last else [])])

    def brief(self) -> str:
        """The head with a brief notice behind it, or without one if there is no room for it."""
        for suffix in (f" {MARKER}: cut{self.whole}]", ""):
            first = self.text
            for each in self.limits:
                first = each.longest(first, each.maximum - each.measure(suffix) * (each.unit != "lines"))
            shown = f"{first.rstrip()}{suffix}".lstrip() if suffix else first
            if all(each.holds(shown) for each in self.limits):
                break
        return shown

    def _notice(self, first: str, last: str, more: str = "") -> str:
        """What is left out between the ends: the lines, and the bytes if the limit is in bytes, else
        the characters; of a spilled text the size and the checksum of all of it."""
        gone = self.text if self.spilled else self.text[len(first) : len(self.text) - len(last)]
        parts = [counted(lines, "line")] if (lines := gone.count("\n")) else []
        if self.unit != "bytes" or self.spilled:
            parts.append(counted(len(gone), "character"))
        if self.unit == "bytes" or self.spilled:
            parts.append(counted(byte_length(gone), "byte"))
        if self.spilled:
            parts.append(f"SHA-256 {hashlib.sha256(gone.encode('utf-8', 'surrogatepass')).hexdigest()}")
        said = f"too large to show: {', '.join(parts)}" if self.spilled else f"{', '.join(parts)} cut here"
        return f"{MARKER}: {said}{self.whole}{more}]"


WHOLE = re.compile(rf"{re.escape(MARKER)}: [^\n]{{1,300}}; whole output: (out_[a-z2-7]+(?:-\d+)?)[^\n]{{0,30}}]")
"""The notice of a cut, with the handle of the archived whole."""


def _less(budgets: Sequence[int], used: Sequence[int]) -> list[int]:
    return [budget - less for budget, less in zip(budgets, used, strict=True)]


def _whole_lines(first: str, last: str) -> tuple[str, str]:
    """Both ends without the partial line at the cut, unless it is a large part of the end."""
    end, start = first.rfind("\n") + 1, last.find("\n") + 1
    first = first[:end] if end >= len(first) * (1 - MAX_SNAP_SHARE) else first
    return first, last[start:] if start <= len(last) * MAX_SNAP_SHARE else last


MAX_SCANNED, MAX_LINES = 500_000, 100
"""Characters that are looked at from the start of an output, and as many from its end; salient lines that are shown."""

MAX_LENGTH, MAX_BEFORE = 200, 80
"""Characters shown of a line, and before the word, if the word is far from the start of its line."""

_WORDS = re.compile(
    r"error|fail|fatal|exception|panic|traceback|denied|refused|not found|no such|warning|critical|timed out|killed"
    r"|passed|summary|total|result|exit|错误|失败|エラー"
)
"""In lower case; a line without any of them is never salient. To look for words is cheaper than to match the patterns
below against each line."""

_COUNTS = re.compile(
    r"\b\d[\d,]* (?:passed|failed|failing|errors?|warnings?|failures|tests?|problems?|vulnerabilities)\b"
    r"|^\W*(?:test result|tests?|total|summary|results?|build)\b ?:"
    r"|\bexit(?:ed)?(?: with)? (?:code|status)\b|\b(?:build|tests?|job) (?:failed|succeeded)\b",
    re.IGNORECASE,
)
_ERROR = re.compile(
    r"^(?:E {2,}|error\b|fatal\b|panic\b|Traceback \(most recent|FAIL(?:ED)?\b|not ok \d|npm ERR!)"
    r"|\b(?:error|fatal|panic|Error|warning)(?:\[\w{1,12}\])?:|\w(?:Error|Exception)\b(?:: |$)|--- FAIL"
    r"|\b(?:ERROR|FATAL|CRITICAL|FAILED|PANIC)\b"
    r"|[Nn]o such file|[Pp]ermission denied|[Cc]onnection refused|: (?:command )?not found|[Ss]egmentation fault"
    r"|\btimed out\b|\b[Kk]illed\b|\bpanicked at\b|错误|失败|エラー"
)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


@dataclass(frozen=True, slots=True)
class SalientLine:
    """A line worth showing, with an error or `counts`, or the part of a long one around a word. `number` counts from 1;
    `start` and `end` are its place in the output."""

    counts: bool
    number: int
    start: int
    end: int
    text: str

    def __str__(self) -> str:
        return f"{self.number}: {self.text}"


def salient_lines(text: str) -> list[SalientLine]:
    """Counts from the last to the first, then errors from the first to the last. Of lines that differ in numbers only
    the first is returned, of counts the last."""
    kinds: dict[tuple[bool, str], SalientLine] = {}
    for line in _said(text):
        kind = line.counts, _NUMBER.sub("#", line.text)
        if line.counts or kind not in kinds:
            kinds[kind] = line
    return sorted(kinds.values(), key=lambda line: (not line.counts, -line.start if line.counts else line.start))


def error_line(text: str) -> str:
    """The first line that says an error; empty if there is none."""
    return next((line.text for line in _said(text) if not line.counts), "")


def _said(text: str) -> Iterator[SalientLine]:
    """The lines that say an error or counts, of long lines the parts."""
    lower = folded(text)
    number, counted_to = 1, 0
    for begin, end in ((0, min(len(text), MAX_SCANNED)), (max(MAX_SCANNED, len(text) - MAX_SCANNED), len(text))):
        while found := _WORDS.search(lower, begin, end):
            hit = found.start()
            start = max(text.rfind("\n", begin, hit) + 1, begin)
            if hit - start > MAX_LENGTH - MAX_BEFORE:
                start = hit - MAX_BEFORE
            line_end = text.find("\n", hit)
            stop = min(line_end if line_end >= 0 else len(text), start + 2 * MAX_LENGTH)
            shown = one_line(text[start:stop], MAX_LENGTH)
            number, counted_to = number + text.count("\n", counted_to, start), start
            counts = _COUNTS.search(shown) is not None
            if counts or _ERROR.search(shown):
                yield SalientLine(counts, number, start, stop, shown)
            begin = max(stop, found.end())


def select(
    lines: Iterable[SalientLine], limits: Sequence[UnitLimit], budgets: Sequence[int], start: int, end: int
) -> list[SalientLine]:
    """The lines between two positions of the text that fit the budgets, chosen by rank, in the text's order."""
    left = list(budgets)
    selected: list[SalientLine] = []
    for line in lines:
        if line.start < start or line.end > end or len(selected) == MAX_LINES:
            continue
        rest = _less(left, [limit.measure(f"{line}\n") for limit in limits])
        if min(rest) >= 0:
            left, selected = rest, [*selected, line]
    return sorted(selected, key=lambda line: line.start)
