"""Texts as pages show them: a very long one is cut, and says where all of it is."""

from __future__ import annotations

from dataclasses import dataclass

MAX_SHOWN = 4_000
"""Characters of one text on a page with many."""

MAX_WHOLE = 2_000_000
"""Characters of a text on a page of its own: a browser gets slow beyond."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a text, and how many characters are not there."""

    text: str
    more: int


TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
"""Marks that turn the direction of a text around: they can make it read otherwise than the model reads it."""


def cut(text: str, most: int = MAX_SHOWN) -> Cut:
    """At most so many characters of a text, in which nothing but line breaks and tabs controls the browser."""
    shown = text[:most].encode("utf-8", "replace").decode("utf-8")
    return Cut("".join(map(_plain, shown)), max(0, len(text) - most))


def _plain(character: str) -> str:
    if character in TURNING:
        return f"‹U+{ord(character):04X}›"
    return character if character >= " " or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
