"""A hand-off in parts: clients bound what one hook may add to the window, so several hooks add a part each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contextstash.safety.sanitize import MARKER

CHARACTERS_PER_TOKEN = 3.6
"""Of a hand-off, of which a third is code; measured on recorded sessions with o200k_base: 3.3 to 4.2. With too small a
number too few parts are used, and the hand-off becomes shorter."""

MAX_PARTS = 3
"""How many hooks are installed for one hand-off: room for some 7,500 tokens. Those that are not needed add nothing."""

MIN_FILLED = 0.9
"""A part ends at the last empty line, if it is at least so full then, or else at the end of a line."""

HEAD = MARKER + ": part {} of {} of a hand-off{}]"
HEAD_CHARACTERS = 100
"""What the head of a part, and a fence at each end, take of its characters at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part `number` of at most `of`, each with at most so many `characters`; None if they are not bounded."""

    number: int = 1
    of: int = 1
    characters: int | None = None

    def used(self, tokens: int) -> int:
        """How many parts a hand-off of so many tokens is divided into."""
        if self.characters is None:
            return 1
        room = self.characters - HEAD_CHARACTERS
        return max(1, min(self.of, -int(-tokens * CHARACTERS_PER_TOKEN // room)))


WHOLE = Part()


def divided(text: str, characters: int) -> list[str]:
    """The text in parts of at most so many characters, each a whole number of lines; of several, each says which part
    it is. A fenced text that is divided is fenced in each part."""
    if len(text) <= characters:
        return [text]
    parts: list[str] = []
    rest, opened = text, ""
    while rest:
        room = characters - HEAD_CHARACTERS
        end = len(rest) if len(rest) <= room else _end(rest, room)
        piece, rest = rest[:end].rstrip("\n"), rest[end:].lstrip("\n")
        piece = f"{opened}\n{piece}" if opened else piece
        opened = _open_fence(piece)
        parts.append(f"{piece}\n{opened}" if opened else piece)
    return [
        f"{HEAD.format(number, len(parts), '' if number == 1 else ', continued')}\n{part}"
        for number, part in enumerate(parts, 1)
    ]


def _end(text: str, room: int) -> int:
    """Where a part ends: at the last empty line, else at the last line break, else in the middle of a line."""
    empty = text.rfind("\n\n", int(room * MIN_FILLED), room)
    line = text.rfind("\n", 0, room)
    return empty if empty > 0 else line if line > 0 else room


_FENCE = re.compile(r"^(`{3,})(?!`)", re.MULTILINE)


def _open_fence(text: str) -> str:
    """The fence that is open at the end of the text, empty if none is."""
    opened = ""
    for fence in _FENCE.findall(text):
        opened = "" if fence == opened else opened or fence
    return opened
