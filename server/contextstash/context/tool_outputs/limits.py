"""Limits on one output: by lines, characters, bytes and tokens, and what is shown of an output that is longer."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Literal, get_args

from contextstash.context.text.truncate import Count
from contextstash.context.tool_outputs import layouts
from contextstash.context.tool_outputs.layouts import Shape, fitted
from contextstash.context.tool_outputs.measures import (
    Gauge,
    at_both_ends,
    at_the_start,
    byte_gauge,
    character_gauge,
    ends,
    line_gauge,
    token_gauge,
)
from contextstash.context.tool_outputs.notices import Shown, Wording
from contextstash.context.window.settings import ContextSettings, Cut, current_value
from contextstash_storage.errors import BadInputError

CHARACTERS_PER_TOKEN = 4
"""The rule of thumb by which the middle-out cut turns tokens into characters, as the token-budget design has it."""

PREVIEW_CHARACTERS = 2_000
"""What is shown of an output that is too large to be cut: its head and tail together."""

MIN_LINES_FOR_BOTH_ENDS = 4
"""With fewer lines there is room for the start only."""

PARENT_NAMES = {
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
"""What these limits are called elsewhere."""


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The most of one output that is shown; None is no limit. Above `spill_chars` characters only a preview is shown.
    `notice` tells whether what says what was cut counts against the limits or comes on top of them."""

    lines: int | None = None
    chars: int | None = None
    bytes: int | None = None
    tokens: int | None = None
    cut: Cut = "smart"
    spill_chars: int | None = None
    notice: Literal["within", "beside"] = "within"

    @classmethod
    def of(cls, settings: ContextSettings) -> OutputLimits:
        """The limits that a session's settings give."""
        return cls(**{field.name: getattr(settings, f"output_{field.name}") for field in fields(cls)})

    def merged(self, given: Mapping[str, Any] | None) -> OutputLimits:
        """These limits with those of one call in their place; None lifts a limit. Raises BadInputError on a wrong
        name, naming the right one, and on a value that is none."""
        changes = {}
        for name, value in (given or {}).items():
            known = NAMES.get(name)
            if known is None:
                raise BadInputError(_unknown(name))
            if name == "cut":
                value = current_value("output_cut", value)
                _check_cut(value)
            elif value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise BadInputError(f"limits.{name} must be a whole number above 0, or null for no such limit.")
            changes[known] = value
        return replace(self, **changes)

    def may_cut(self, characters: int, tokens: int) -> bool:
        """Whether a text of that many characters and about that many tokens can be over a limit at all."""
        most_bytes = 4 * characters
        return (
            _over(characters, self.lines)
            or _over(characters, self.chars)
            or _over(characters, self.spill_chars)
            or _over(most_bytes, self.bytes)
            or _over(max(tokens + 1, -(-characters // CHARACTERS_PER_TOKEN)), self.tokens)
        )

    def holds(self, text: str, count: Count) -> bool:
        """Whether a text is within all the limits."""
        return not _over(len(text), self.spill_chars) and all(gauge.holds(text) for gauge in self.gauges(count))

    def gauges(self, count: Count) -> tuple[Gauge, ...]:
        """The limits in the order in which they are applied."""
        found = []
        if self.lines is not None:
            found.append(line_gauge(self.lines))
        if self.chars is not None:
            found.append(character_gauge(self.chars))
        if self.tokens is not None and self.cut == "middle":
            found.append(character_gauge(CHARACTERS_PER_TOKEN * self.tokens))
        if self.bytes is not None:
            found.append(byte_gauge(self.bytes))
        if self.tokens is not None:
            found.append(token_gauge(self.tokens, count))
        return tuple(found)


NAMES = {field.name: field.name for field in fields(OutputLimits) if field.name != "notice"}


def _over(value: int, most: int | None) -> bool:
    return most is not None and value > most


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.removeprefix("output_"), list(NAMES), n=1, cutoff=0.5)
    right = PARENT_NAMES.get(name.lower()) or (near[0] if near else None)
    hint = f"Did you mean '{right}'?" if right else f"Known: {', '.join(NAMES)}."
    return f"There is no limit '{name}'. {hint}"


def _check_cut(value: object) -> None:
    if value not in get_args(Cut):
        raise BadInputError(f"limits.cut is one of {', '.join(get_args(Cut))}, not '{value}'.")


@dataclass(frozen=True, slots=True)
class Limited:
    """A text within limits. `text` includes `notice`. `lines` (line ends), `characters` and `bytes` (UTF-8) are what
    was left out between its first `head` and its last `tail` characters, 0 if nothing was cut."""

    text: str
    cut: bool = False
    notice: str = ""
    lines: int = 0
    characters: int = 0
    bytes: int = 0
    spilled: bool = False
    head: int = 0
    tail: int = 0


def limit(text: str, limits: OutputLimits, count: Count, handle: str = "") -> Limited:
    """The text within all the limits, by lines first, then characters, bytes and tokens.

    The start and the end shown are the text's own to the letter, and end between characters. A notice says what was
    cut, and `handle`, if the whole is; it counts against the limits, unless they say that it comes beside them.
    Limits too small for a notice get a shorter one, or the bare start.
    """
    if _over(len(text), limits.spill_chars):
        return _limited(_spilled(text, limits, count, handle), spilled=True)
    gauges = limits.gauges(count)
    over = [gauge.unit for gauge in gauges if not gauge.holds(text)]
    if not over:
        return Limited(text, head=len(text))
    wording = Wording(text, over[0], handle)
    if limits.notice == "beside":
        split = at_the_start if limits.cut == "head" else at_both_ends
        say = wording.head if limits.cut == "head" else wording.middle
        return _limited(say(*ends(text, gauges, [gauge.most for gauge in gauges], split)))
    shown = fitted(gauges, _shape(limits, wording))
    return _limited(shown or _smallest(gauges, wording))


def _shape(limits: OutputLimits, wording: Wording) -> Shape:
    few_lines = limits.lines is not None and limits.lines < MIN_LINES_FOR_BOTH_ENDS
    if limits.cut == "head" or few_lines:
        return layouts.plain(wording.text, at_the_start, wording.head)
    if limits.cut == "head_tail":
        return layouts.plain(wording.text, at_both_ends, wording.head_tail)
    if limits.cut == "middle":
        return layouts.middle_out(wording)
    return layouts.telling(wording)


def _spilled(text: str, limits: OutputLimits, count: Count, handle: str) -> Shown:
    wording = Wording(text, handle=handle)
    preview = partial(wording.preview, hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest())
    room = PREVIEW_CHARACTERS + len(preview("", "").text)
    gauges = (*replace(limits, cut="head_tail").gauges(count), character_gauge(room))
    return fitted(gauges, layouts.plain(text, at_both_ends, preview)) or _smallest(gauges, wording)


def _smallest(gauges: Sequence[Gauge], wording: Wording) -> Shown:
    """The start with a few words, or bare if there is no room for them."""
    shown = fitted(gauges, layouts.plain(wording.text, at_the_start, wording.brief))
    if shown is not None:
        return shown
    first = wording.text
    for gauge in gauges:
        first = gauge.first(first, gauge.most)
    return wording.bare(first, "")


def _limited(shown: Shown, *, spilled: bool = False) -> Limited:
    return Limited(
        text=shown.text,
        cut=True,
        notice=shown.notice,
        lines=shown.lines,
        characters=shown.characters,
        bytes=shown.bytes,
        spilled=spilled,
        head=shown.head,
        tail=shown.tail,
    )
