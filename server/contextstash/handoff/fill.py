"""Fills a budget of tokens with sections: each gets its share at first, what it leaves goes to the others in order."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from contextstash.events.sentences import GAP
from contextstash.events.sentences import Count as Count
from contextstash.safety.sanitize import encodable


@dataclass(frozen=True, slots=True)
class Section:
    """A section by its heading. `write` returns its items, in at most so many tokens. It gets `share` of the budget at
    first, and of what is left in the order of `rank`, the lowest first."""

    heading: str
    share: float
    rank: int
    write: Callable[[int], Sequence[str]]


def fill(sections: Sequence[Section], max_tokens: int, count: Count) -> str:
    """The sections, in the given order, in at most `max_tokens`; those without items are left out."""
    written: dict[str, str] = {}
    costs: dict[str, int] = {}
    left = max_tokens
    ranked = sorted(sections, key=lambda section: section.rank)
    for again in (False, True):
        for section in ranked:
            own = costs.get(section.heading, 0)
            room = left + own if again else min(left, int(max_tokens * section.share))
            if again and left <= 0:
                break
            text = _written(section, room - BETWEEN, count)
            cost = count(f"{text}\n\n") if text else 0
            if cost <= left + own and (cost or not again):
                written[section.heading], costs[section.heading] = text, cost
                left -= cost - own
    parts = [written[section.heading] for section in sections if written.get(section.heading)]
    while parts and count("\n\n".join(parts)) > max_tokens:
        parts.pop()
    return "\n\n".join(parts)


BETWEEN = 3
"""Tokens between two sections at most: a section that took its whole room would not fit with them."""


def _written(section: Section, room: int, count: Count) -> str:
    head = f"## {section.heading}\n"
    items = section.write(room - count(head) - 2) if room > 0 else []
    return encodable(head + "\n".join(map(write_item, items))) if items else ""


def write_item(item: str) -> str:
    """An item as a bullet; its further lines are indented."""
    first, *rest = item.strip("\n").split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in rest)])


def item_tokens(item: str, count: Count) -> int:
    """The tokens that an item takes, with the line end behind it."""
    return count(write_item(item)) + 1


def first_of(items: Iterable[str], room: int, cost: Count) -> list[str]:
    """The first items that fit, in their order; one that is too long is skipped."""
    kept: list[str] = []
    for item in items:
        if room < MIN_ITEM:
            break
        if (takes := cost(item)) <= room:
            kept.append(item)
            room -= takes
    return kept


MIN_ITEM = 3
"""Tokens that any item takes."""


def newest_cut(items: Sequence[str], bounds: Sequence[int], room: int, cost: Count) -> list[str]:
    """The last items, each in at most so many tokens as its bound says, in their order, as far as they fit: of one that
    does not, what fits; none that is older, but short, stands in its place."""
    kept: list[str] = []
    for place in reversed(range(len(items))):
        most = min(bounds[place], room)
        shown = cut_middle(items[place], most, cost) if most >= MIN_CUT or cost(items[place]) <= most else ""
        kept += [shown] if shown else []
        room -= cost(shown) if shown else 0
        if shown != items[place] and most < bounds[place]:
            break
    return kept[::-1]


MIN_CUT = 40
"""Tokens to which an item may be shortened: two sentences."""


def cut_middle(text: str, max_tokens: int, count: Count) -> str:
    """The text in at most `max_tokens`: whole sentences or lines of its beginning and of its end, with `[…]` between
    them; without one that fits, words."""
    if count(text) <= max_tokens:
        return text
    for end in (_END, _BLANK):
        ends = [0, *(found.end() for found in end.finditer(text[:-1])), len(text)]
        shown = _without_middle([text[start:stop] for start, stop in pairwise(ends)], max_tokens, count)
        if shown:
            return shown
    return ""


_END = re.compile(r"\n+|(?<!^\d)(?<!^\d\d)[.!?][\"'”’)*`]*\s+|[。！？]", re.MULTILINE)
"""Where a sentence or a line ends; not behind the number of an item of a list."""

_BLANK = re.compile(r"\s+")


def _without_middle(pieces: Sequence[str], max_tokens: int, count: Count) -> str:
    """Pieces of the beginning in two thirds of the room, of the end in what that leaves, and then again of the
    beginning; empty if the first one does not fit."""
    pieces = [*pieces[:max_tokens], *pieces[max_tokens:][-max_tokens:]] if max_tokens > 0 else []  # each takes a token
    empty = count("")
    sizes = [count(piece) - empty for piece in pieces]

    def fitting(first: int, stop: int, step: int, room: int) -> int:
        return bisect_right([*accumulate(sizes[first:stop][::step])], room)

    room = max_tokens - empty - GAP_TOKENS
    head = fitting(0, len(sizes), 1, room * 2 // 3) or fitting(0, 1, 1, room)
    tail = fitting(head, len(sizes), -1, room - sum(sizes[:head])) if head else 0
    left = room - sum(sizes[:head]) - sum(sizes[len(sizes) - tail :])
    head += fitting(head, len(sizes) - tail, 1, left) if head else 0

    def without(less: int) -> str:
        before, after = "".join(pieces[: head - less]), "".join(pieces[len(pieces) - tail :])
        between = "\n" if before.endswith("\n") else " "
        return f"{before.rstrip()}{between}{GAP}{between}{after.lstrip()}".strip()

    # Joined, the pieces may take more tokens.
    less = bisect_left(range(head), True, key=lambda less: count(without(less)) <= max_tokens)
    return without(less) if less < head else ""


GAP_TOKENS = 3
"""What the mark of a gap takes."""
