"""Limits on one output: in lines, characters, bytes and tokens, and the excerpt of an output that exceeds them.

An excerpt is a head, a notice and a tail; `smart` shows the salient lines between them. It is made smaller until it is
within every limit, and is the head with a brief notice, or without one, if there is no room for more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from contextstash.outputs.counts import counted
from contextstash.outputs.measures import Count, Unit, UnitLimit, byte_length, divided, ends
from contextstash.outputs.salient import SalientLine, rendered, salient_lines, select
from contextstash.safety.sanitize import MARKER
from contextstash.window.settings import ContextSettings, Cut

CHARACTERS_PER_TOKEN = 4
"""How many characters the middle-out cut counts as a token: the rule of the preset `token-budget`, whose 2,500 tokens
are 10,000 characters."""

MAX_PREVIEW_CHARACTERS = 2_200
"""Longest excerpt of an output above `spill_chars`, some 200 of them for its notice: about 30 lines, 500 tokens."""

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
        """These limits, overridden by those of one call; None removes a limit."""
        return replace(self, **(given or {}))

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


def sets_output_limits(layer: Mapping[str, Any]) -> bool:
    """Whether a layer of settings may change the limits of a tool output."""
    return any(name == "preset" or name.startswith("output_") for name in layer)


def _over(value: int, maximum: int | None) -> bool:
    return maximum is not None and value > maximum


def limit(text: str, limits: OutputLimits, count: Count, handle: str = "") -> str:
    """The text cut to all the limits: lines first, then characters, bytes and tokens.

    Head and tail are unchanged parts of the text, and end between characters. A notice between them, or behind the
    head, says what was cut, and gives `handle`, under which the whole text is archived. The notice counts towards the
    limits, unless `limits.notice` is "beside". If there is no room for it, a shorter one follows the head, or none.
    """
    units = limits.unit_limits(count)
    cut = limits.cut
    spilled = _over(len(text), limits.spill_chars)
    if spilled:
        units, cut = (*units, UnitLimit.of("characters", MAX_PREVIEW_CHARACTERS, count)), "head_tail"
    exceeded = [each.unit for each in units if not each.holds(text)]
    if not exceeded:
        return text
    excerpt = _Excerpt(text, units, exceeded[0], handle, spilled)
    if limits.notice == "beside":
        return excerpt.of_ends([each.maximum for each in units], cut)
    return excerpt.fitted(cut) or excerpt.brief()


@dataclass(frozen=True, slots=True)
class _Excerpt:
    """The excerpt of one text that exceeds its limits. `unit` is that of the first limit that it exceeds; `handle` is
    that of the archived text, empty if it is not archived; a `spilled` text is far too large."""

    text: str
    limits: tuple[UnitLimit, ...]
    unit: Unit
    handle: str
    spilled: bool

    def fitted(self, cut: Cut) -> str | None:
        """The excerpt within every limit, its notice included; None if there is no room. It is measured as a whole,
        because the tokens of its pieces do not add up to its own."""
        budgets = [each.maximum for each in self.limits]
        found = salient_lines(self.text) if cut == "smart" else []
        for _ in range(MAX_ATTEMPTS):
            inner = budgets if cut == "middle" else self._less_notice(budgets)
            if min(divided(cut, each.unit, budget)[0] for each, budget in zip(self.limits, inner, strict=True)) <= 0:
                return None
            shown = self._with_salient(inner, found) if cut == "smart" else self.of_ends(inner, cut)
            excess = [each.measure(shown) - each.maximum for each in self.limits]
            if max(excess) <= 0:
                return shown
            budgets = [left - (over + over // 4 + 1) * (over > 0) for left, over in zip(budgets, excess, strict=True)]
        return None

    def of_ends(self, budgets: Sequence[int], cut: Cut) -> str:
        """The ends that fit the budgets, and the notice in addition to them."""
        first, last = ends(self.text, self.limits, budgets, cut)
        return f"{_ended(first)}{self._notice(first, last)}" + (f"\n{last}" if last else "")

    def _with_salient(self, budgets: Sequence[int], found: Sequence[SalientLine]) -> str:
        """Both ends in whole lines, and between them the salient lines with their numbers."""
        text, limits = self.text, self.limits
        shares = [int(budget * SALIENT_SHARE) for budget in budgets]
        first, last = _whole_lines(*ends(text, limits, _less(budgets, shares), "smart"))
        selected = select(found, limits, shares, len(first), len(text) - len(last))
        # What the selected lines leave of their share goes to head and tail, which may then include some of them.
        used = [each.measure(rendered(selected, 0)) for each in limits]
        first, last = _whole_lines(*ends(text, limits, _less(budgets, used), "smart"))
        end = len(text) - len(last)
        lines = rendered([each for each in selected if len(first) <= each.start < end], first.count("\n"))
        if not lines:
            return f"{_ended(first)}{self._notice(first, last)}\n{last}"
        notice = self._notice(first, last, "; the relevant lines:")
        goes_on = f"{MARKER}: from line {text.count(chr(10), 0, end) + 1:,} on:]"
        return f"{_ended(first)}{notice}\n{lines}\n{goes_on}\n{last}"

    def brief(self) -> str:
        """The head with a brief notice behind it, or without one if there is no room for it."""
        notice = f" {MARKER}: cut{self._whole()}]"
        for suffix in (notice, ""):
            first = self.text
            for each in self.limits:
                room = each.maximum if each.unit == "lines" else each.maximum - each.measure(suffix)
                first = each.longest(first, room)
            shown = f"{first.rstrip()}{suffix}".lstrip() if suffix else first
            if all(each.holds(shown) for each in self.limits):
                break
        return shown

    def _less_notice(self, budgets: Sequence[int]) -> list[int]:
        sample = self._notice("", "")
        costs = [each.measure(sample) + SLACK * (each.unit != "lines") for each in self.limits]
        return _less(budgets, costs)

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
        return f"{MARKER}: {said}{self._whole()}{more}]"

    def _whole(self) -> str:
        return f"; whole output: {self.handle}" if self.handle else ""


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
