"""Long texts for a reader: cut, and without characters that control the browser."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SHOWN = 4_000
"""Characters of one text on a page with many texts: about a screen."""

MAX_WHOLE = 2_000_000
"""Characters of a text on a page of its own: browsers render longer texts slowly."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a text, and how many characters were cut."""

    text: str
    more: int


BIDI_CONTROLS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
"""Characters that change the direction of a text: a reader could see a different order than the model does."""


def cut(text: str, max_chars: int = MAX_SHOWN) -> Cut:
    """At most `max_chars` characters of a text, without control characters other than line breaks and tabs."""
    shown = text[:max_chars].encode("utf-8", "replace").decode("utf-8")
    return Cut("".join(map(_plain, shown)), max(0, len(text) - max_chars))


def _plain(character: str) -> str:
    if character in BIDI_CONTROLS:
        return f"‹U+{ord(character):04X}›"
    return character if character >= " " or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
