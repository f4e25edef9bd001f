"""Limits on one output: in lines, characters, bytes and tokens, and the excerpt of an output that exceeds them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, get_args

from contextstash.base.near_names import nearest
from contextstash.outputs import layouts
from contextstash.outputs.layouts import Layout, fitted
from contextstash.outputs.measures import Unit, UnitLimit, ends, head_and_tail, head_only
from contextstash.outputs.notices import Limited, NoticeWriter
from contextstash.outputs.truncate import Count
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

NAMES_ELSEWHERE = {
    "max_lines": "lines",
    "max_chars": "chars",
    "max_characters": "chars",
    "max_bytes": "bytes",
    "max_tokens": "tokens",
    "mode": "cut",
    "truncate_mode": "cut",
    "large_output_threshold": "spill_chars",
    "spill": "spill_chars",
}
"""Names of these limits in other systems, for the hint in an error."""


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
    right = NAMES_ELSEWHERE.get(name.lower()) or nearest(name.removeprefix("output_"), NAMES)
    hint = f"Did you mean '{right}'?" if right else f"Known: {', '.join(NAMES)}."
    return f"There is no limit '{name}'. {hint}"


def _check_cut(value: object) -> None:
    if value not in get_args(Cut):
        raise BadInputError(f"limits.cut must be one of {', '.join(get_args(Cut))}, not '{value}'.")


def limit(text: str, limits: OutputLimits, count: Count, handle: str = "") -> Limited:
    """The text cut to all the limits: lines first, then characters, bytes and tokens.

    Head and tail are unchanged parts of the text, and end between characters. A notice says what was cut, and gives
    `handle`, under which the whole text is archived. The notice counts towards the limits, unless `limits.notice` is
    "beside". If the limits are too small for the notice, it is shortened, and finally left out.
    """
    if _over(len(text), limits.spill_chars):
        return replace(_spilled(text, limits, count, handle), spilled=True)
    unit_limits = limits.unit_limits(count)
    exceeded = [each.unit for each in unit_limits if not each.holds(text)]
    if not exceeded:
        return Limited(text, head=len(text))
    writer = NoticeWriter(text, exceeded[0], handle)
    if limits.notice == "beside":
        split = head_only if limits.cut == "head" else head_and_tail
        compose = writer.head if limits.cut == "head" else writer.middle
        return compose(*ends(text, unit_limits, [each.maximum for each in unit_limits], split))
    return fitted(unit_limits, _layout(limits, writer)) or _smallest(unit_limits, writer)


def _layout(limits: OutputLimits, writer: NoticeWriter) -> Layout:
    few_lines = limits.lines is not None and limits.lines < MIN_LINES_FOR_BOTH_ENDS
    if limits.cut == "head" or few_lines:
        return layouts.plain(writer.text, head_only, writer.head)
    if limits.cut == "head_tail":
        return layouts.plain(writer.text, head_and_tail, writer.head_tail)
    if limits.cut == "middle":
        return layouts.middle_out(writer)
    return layouts.smart(writer)


def _spilled(text: str, limits: OutputLimits, count: Count, handle: str) -> Limited:
    writer = NoticeWriter(text, handle=handle)
    preview = partial(writer.preview, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
    maximum = MAX_PREVIEW_CHARACTERS + len(preview("", "").text)
    unit_limits = (*replace(limits, cut="head_tail").unit_limits(count), UnitLimit.of("characters", maximum, count))
    return fitted(unit_limits, layouts.plain(text, head_and_tail, preview)) or _smallest(unit_limits, writer)


def _smallest(unit_limits: Sequence[UnitLimit], writer: NoticeWriter) -> Limited:
    """The head with a brief notice, or without one if there is no room for it."""
    excerpt = fitted(unit_limits, layouts.plain(writer.text, head_only, writer.brief))
    if excerpt is not None:
        return excerpt
    first = writer.text
    for each in unit_limits:
        first = each.first(first, each.maximum)
    return writer.bare(first, "")
