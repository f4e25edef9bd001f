"""Limits on one output: in lines, characters, bytes and tokens, and the excerpt of an output that exceeds them.

An excerpt is composed in one of five ways, made smaller until it is within every limit, and replaced by the
head with a brief notice, or without one, if there is no room for more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from contextstash.base.near_names import nearest
from contextstash.outputs.measures import Count, Split, Unit, UnitLimit, byte_length, ends, line_count
from contextstash.outputs.salient import rendered, salient_lines, select
from contextstash.safety.sanitize import MARKER
from contextstash.window.settings import ContextSettings, Cut
from contextstash_storage.errors import BadInputError

CHARACTERS_PER_TOKEN = 4
"""How many characters the middle-out cut counts as a token: the rule of the preset `token-budget`, whose 2,500 tokens
are 10,000 characters."""

MAX_PREVIEW_CHARACTERS = 2_000
"""Longest preview of an output above `spill_chars`: its head and tail together. Some 30 lines, about 500
tokens."""

MIN_LINES_FOR_BOTH_ENDS = 4
"""With fewer lines only the head is shown: one line of text, the mark, another line and the notice are four."""

MIDDLE_RESERVE = {"lines": 3, "characters": 50, "bytes": 50, "tokens": 0}
"""What the middle-out cut leaves free on each side for its notice. The 50 come from the designs that the presets
`staged` and `token-budget` reproduce. They count a token as four characters, so tokens need no reserve."""

MAX_MIDDLE_NOTICE = 96
"""Longest notice of the middle-out cut, in characters: with its four line ends the 50 on each side."""

SLACK = 12
"""How much a notice may grow once its numbers are known, in characters, bytes and tokens: a few more digits than in
the sample. The excerpt is measured anyway."""

SALIENT_SHARE = 0.3
"""Largest share of the budget that the salient lines take. The head and the tail keep the larger part."""

MAX_SNAP_SHARE = 0.25
"""Up to this share of an end is given up so that it consists of whole lines."""

MAX_ATTEMPTS = 6
"""How often an excerpt is made smaller before a shorter notice is used. Each attempt removes the excess and a quarter
more, so that two are usually enough."""

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
        return replace(limits, tokens=min(limits.tokens, _of_window(window, settings.output_share)))

    def merged(self, given: Mapping[str, Any] | None) -> OutputLimits:
        """These limits, overridden by those of one call; None removes a limit. Raises BadInputError if a name is
        unknown, naming the nearest right one, or if a value is invalid."""
        changes = {}
        for name, value in (given or {}).items():
            known = NAMES.get(name)
            if known is None:
                raise BadInputError(_unknown(name))
            if name == "cut":
                _check_cut(value)
            elif value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise BadInputError(f"limits.{name} must be a whole number above 0, or null for no limit.")
            changes[known] = value
        return replace(self, **changes)

    def may_cut(self, characters: int, tokens: int) -> bool:
        """Whether a text of that many characters and about that many tokens could exceed a limit. If not, the text
        need not be read."""
        max_bytes = 4 * characters  # UTF-8 takes at most four bytes for a character
        return (
            _over(characters, self.lines)
            or _over(characters, self.chars)
            or _over(characters, self.spill_chars)
            or _over(max_bytes, self.bytes)
            or _over(max(tokens + 1, -(-characters // CHARACTERS_PER_TOKEN)), self.tokens)
        )

    def holds(self, text: str, count: Count) -> bool:
        """Whether a text is within all the limits."""
        return not _over(len(text), self.spill_chars) and all(each.holds(text) for each in self.unit_limits(count))

    def unit_limits(self, count: Count) -> tuple[UnitLimit, ...]:
        """The limits in the order in which they are applied."""
        middle_out = None if self.tokens is None or self.cut != "middle" else CHARACTERS_PER_TOKEN * self.tokens
        maxima: tuple[tuple[Unit, int | None], ...] = (
            ("lines", self.lines),
            ("characters", self.chars),
            ("characters", middle_out),
            ("bytes", self.bytes),
            ("tokens", self.tokens),
        )
        return tuple(UnitLimit.of(unit, most, count) for unit, most in maxima if most is not None)


NAMES = {field.name: field.name for field in fields(OutputLimits) if field.name != "notice"}


def _of_window(window: int, share: float) -> int:
    """The tokens of one output in a window of so many."""
    return max(1, int(window * share), min(int(window * min(1, 2 * share)), READABLE_TOKENS))


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


def _over(value: int, maximum: int | None) -> bool:
    return maximum is not None and value > maximum


def _unknown(name: str) -> str:
    right = nearest(name.removeprefix("output_").removeprefix("max_"), NAMES)
    hint = f"Did you mean '{right}'?" if right else f"Known: {', '.join(NAMES)}."
    return f"There is no limit '{name}'. {hint}"


def _check_cut(value: object) -> None:
    if value not in get_args(Cut):
        raise BadInputError(f"limits.cut must be one of {', '.join(get_args(Cut))}, not '{value}'.")


@dataclass(frozen=True, slots=True)
class Limited:
    """A text within its limits; if it was `cut`, its first `head` and last `tail` characters with a notice, which
    `text` includes. Left out between them are so many line ends, characters, and bytes in UTF-8."""

    text: str
    cut: bool = False
    notice: str = ""
    spilled: bool = False
    head: int = 0
    tail: int = 0
    lines: int = 0
    characters: int = 0
    bytes: int = 0


def limit(text: str, limits: OutputLimits, count: Count, handle: str = "") -> Limited:
    """The text cut to all the limits: lines first, then characters, bytes and tokens.

    Head and tail are unchanged parts of the text, and end between characters. A notice says what was cut, and gives
    `handle`, under which the whole text is archived. The notice counts towards the limits, unless `limits.notice` is
    "beside". If the limits are too small for the notice, it is shortened, and finally left out.
    """
    spilled = _over(len(text), limits.spill_chars)
    unit_limits = (replace(limits, cut="head_tail") if spilled else limits).unit_limits(count)
    exceeded = [each.unit for each in unit_limits if not each.holds(text)]
    if not exceeded and not spilled:
        return Limited(text, head=len(text))
    excerpt = _Excerpt(text, unit_limits, "characters" if spilled else exceeded[0], handle)
    if spilled:
        return replace(excerpt.preview(), spilled=True)
    few_lines = limits.lines is not None and limits.lines < MIN_LINES_FOR_BOTH_ENDS
    if limits.notice == "beside":
        return excerpt.beside(head_only=limits.cut == "head")
    return excerpt.within("head" if few_lines else limits.cut)


_Compose = Callable[[str, str], tuple[str, str]]
"""`compose(first, last)`: the excerpt with this head and tail, and the notice in it."""


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """The excerpt of one text that exceeds its limits. `unit` is that of the first limit that it exceeds; `handle` is
    that of the archived text, empty if it is not archived."""

    text: str
    limits: tuple[UnitLimit, ...]
    unit: Unit
    handle: str

    def within(self, cut: Cut) -> Limited:
        """The excerpt whose notice is within the limits too."""
        if cut == "head":
            shown = self._plain(_head_only, self._with_head)
        elif cut == "head_tail":
            shown = self._plain(_both, self._with_both)
        elif cut == "middle":
            shown = self._fitted(self._middle_out)
        else:
            shown = self._smart()
        return shown or self._smallest()

    def beside(self, *, head_only: bool) -> Limited:
        """The excerpt within the limits, and the notice in addition."""
        budgets = [each.maximum for each in self.limits]
        first, last = ends(self.text, self.limits, budgets, _head_only if head_only else _both)
        return self._limited(self._with_head if head_only else self._with_middle, first, last)

    def preview(self) -> Limited:
        """Size, checksum and handle of a text that is too large, then its head and tail."""
        longest = MAX_PREVIEW_CHARACTERS + len(self._with_checksum("", "")[0])
        limits = (*self.limits, UnitLimit.of("characters", longest, len))
        excerpt = replace(self, limits=limits)
        return excerpt._plain(_both, excerpt._with_checksum) or excerpt._smallest()

    def _fitted(self, compose: Callable[[Sequence[int]], Limited | None]) -> Limited | None:
        """What `compose(budgets)` makes within every limit, each budget in its limit's unit; None if there is nothing
        of the kind. It is measured as a whole, because the tokens of its pieces do not add up to its own."""
        budgets = [each.maximum for each in self.limits]
        for _ in range(MAX_ATTEMPTS):
            shown = compose(budgets)
            if shown is None:
                return None
            excess = [each.measure(shown.text) - each.maximum for each in self.limits]
            if max(excess) <= 0:
                return shown
            budgets = [left - (over + over // 4 + 1) * (over > 0) for left, over in zip(budgets, excess, strict=True)]
        return None

    def _plain(self, split: Split, compose: _Compose) -> Limited | None:
        """The ends that `split` leaves, less the room for the notice."""
        sample = compose("x\n", "")[0]

        def composed(budgets: Sequence[int]) -> Limited | None:
            inner = self._less_notice(budgets, sample)
            return self._limited(compose, *ends(self.text, self.limits, inner, split)) if inner else None

        return self._fitted(composed)

    def _middle_out(self, budgets: Sequence[int]) -> Limited | None:
        """Half of the limit from each end, less 50 characters."""
        if any(min(_middle(each, budget)) <= 0 for each, budget in zip(self.limits, budgets, strict=True)):
            return None
        return self._limited(self._with_middle, *ends(self.text, self.limits, budgets, _middle))

    def _smart(self) -> Limited | None:
        """Head and tail, and between them the salient lines with their numbers."""
        text, limits = self.text, self.limits
        found = salient_lines(text)
        sample = self._with_salient("…" if found else "", "x\n", "")[0]

        def composed(budgets: Sequence[int]) -> Limited | None:
            inner = self._less_notice(budgets, sample)
            if not inner:
                return None
            shares = [int(budget * SALIENT_SHARE) for budget in inner]
            first, last = _whole_lines(*ends(text, limits, _less(inner, shares), _both))
            selected = select(found, limits, shares, len(first), len(text) - len(last))
            # What the selected lines leave of their share goes to head and tail, which may then include some of them.
            used = [each.measure(rendered(selected, 0)) for each in limits]
            first, last = _whole_lines(*ends(text, limits, _less(inner, used), _both))
            shown = [line for line in selected if line.start >= len(first) and line.end <= len(text) - len(last)]
            lines = rendered(shown, first.count("\n"))
            return self._limited(lambda first, last: self._with_salient(lines, first, last), first, last)

        return self._fitted(composed)

    def _smallest(self) -> Limited:
        """The head with a brief notice, or without one if there is no room for it."""
        excerpt = self._plain(_head_only, self._with_brief)
        if excerpt is not None:
            return excerpt
        first = self.text
        for each in self.limits:
            first = each.first(first, each.maximum)
        return self._limited(lambda first, _: (first, ""), first, "")

    def _less_notice(self, budgets: Sequence[int], sample: str) -> list[int]:
        """The budgets less the notice, whose size is that in the sample; an empty list if nothing is left of one."""
        inner = [
            budget - (each.measure(sample) - each.measure("x\n")) - SLACK * (each.unit != "lines")
            for each, budget in zip(self.limits, budgets, strict=True)
        ]
        return inner if min(inner, default=0) > 0 else []

    def _limited(self, compose: _Compose, first: str, last: str) -> Limited:
        shown, notice = compose(first, last)
        gone = self._gone(first, last)
        return Limited(
            shown, True, notice, False, len(first), len(last), gone.count("\n"), len(gone), byte_length(gone)
        )

    # The notices, each with the head and the tail around it.

    def _with_head(self, first: str, last: str) -> tuple[str, str]:
        unit: Unit = "characters" if self.unit == "tokens" else self.unit
        shown, whole = (UnitLimit.of(unit, 0, len).measure(text) for text in (first, self.text))
        notice = f"{MARKER}: cut after the first {shown:,} of {whole:,} {unit}{self._whole()}]"
        return f"{_ended(first)}{notice}", notice

    def _with_both(self, first: str, last: str) -> tuple[str, str]:
        """A short mark at the cut, and the notice at the end."""
        lines = self._gone(first, last).count("\n")
        cut = f"{lines:,} lines" if lines else self._amount(first, last, "characters")
        of = f"{line_count(self.text):,} lines, " if lines else ""
        size = f"{byte_length(self.text):,} bytes" if self.unit == "bytes" else f"{len(self.text):,} characters"
        notice = f"{MARKER}: {self._amount(first, last)} of {of}{size} cut{self._whole()}]"
        return f"{_ended(first)}{MARKER}: {cut} cut here]\n{_ended(last)}{notice}", notice

    def _with_middle(self, first: str, last: str) -> tuple[str, str]:
        notice = f"{MARKER}: {self._amount(first, last)} cut here{self._whole()}]"
        if len(notice) > MAX_MIDDLE_NOTICE:
            notice = f"{MARKER}: {len(self._gone(first, last)):,} characters cut{self._whole()}]"
        return f"{first}\n\n{notice}\n\n{last}", notice

    def _with_salient(self, lines: str, first: str, last: str) -> tuple[str, str]:
        start = f"{MARKER}: {self._amount(first, last)} cut here{self._whole()}"
        if not lines:
            return f"{_ended(first)}{start}]\n{last}", f"{start}]"
        notice = f"{start}; the relevant lines:]"
        on = f"{MARKER}: from line {self.text.count(chr(10), 0, len(self.text) - len(last)) + 1:,} on:]"
        return f"{_ended(first)}{notice}\n{lines}\n{on}\n{last}", notice

    def _with_checksum(self, first: str, last: str) -> tuple[str, str]:
        lines = line_count(self.text)
        size = f"{len(self.text):,} characters, {byte_length(self.text):,} bytes, {lines:,} line{'s' * (lines != 1)}"
        sha256 = hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()
        notice = f"{MARKER}: too large to show, {size}, SHA-256 {sha256}{self._whole()}; head and tail:]"
        cut = f"{MARKER}: {self._amount(first, last, 'characters')} cut here]"
        return f"{notice}\n{_ended(first)}{cut}\n{last}", notice

    def _with_brief(self, first: str, last: str) -> tuple[str, str]:
        notice = f"{MARKER}: cut{self._whole()}]"
        return f"{first.rstrip()} {notice}".lstrip(), notice

    def _whole(self) -> str:
        return f"; whole output: {self.handle}" if self.handle else ""

    def _gone(self, first: str, last: str) -> str:
        return self.text[len(first) : len(self.text) - len(last)]

    def _amount(self, first: str, last: str, unit: Unit | None = None) -> str:
        """What is left out in words: the lines, and the bytes if the limit is in bytes, else the characters."""
        gone = self._gone(first, last)
        size = f"{byte_length(gone):,} bytes" if (unit or self.unit) == "bytes" else f"{len(gone):,} characters"
        lines = gone.count("\n")
        return f"{lines:,} line{'s' * (lines != 1)}, {size}" if lines else size


def _head_only(limit: UnitLimit, budget: int) -> tuple[int, int]:
    return budget, 0


def _both(limit: UnitLimit, budget: int) -> tuple[int, int]:
    return budget - budget // 2, budget // 2


def _middle(limit: UnitLimit, budget: int) -> tuple[int, int]:
    keep = budget // 2 - MIDDLE_RESERVE[limit.unit]
    return keep, keep


def _less(budgets: Sequence[int], used: Sequence[int]) -> list[int]:
    return [budget - less for budget, less in zip(budgets, used, strict=True)]


def _ended(text: str) -> str:
    """The text with a line feed at its end, unless it is empty."""
    return text if not text or text.endswith("\n") else f"{text}\n"


def _whole_lines(first: str, last: str) -> tuple[str, str]:
    """Both ends without the partial line at the cut, unless it is a large part of the end."""
    end = first.rfind("\n") + 1
    start = last.find("\n") + 1
    if end < len(first) * (1 - MAX_SNAP_SHARE):
        end = len(first)
    if start > len(last) * MAX_SNAP_SHARE:
        start = 0
    return first[:end], last[start:]
