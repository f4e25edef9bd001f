"""Long texts for a reader: cut, and with control characters made visible."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash.display.visible_text import visible

MAX_SHOWN = 4_000
"""Characters of one text on a page with many texts: about a screen."""

MAX_WHOLE = 2_000_000
"""Characters of a text on a page of its own: browsers render longer texts slowly."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The beginning of a text, and how many characters were cut."""

    text: str
    more: int


def cut(text: str, max_chars: int = MAX_SHOWN) -> Cut:
    """At most `max_chars` characters of a text, with its control characters made visible."""
    shown = text[:max_chars].encode("utf-8", "replace").decode("utf-8")
    return Cut(visible(shown), max(0, len(text) - max_chars))
