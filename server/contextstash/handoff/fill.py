"""Fills a budget of tokens with sections: each gets its share at first, what it leaves goes to the others in order."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contextstash.safety.sanitize import encodable

Count = Callable[[str], int]


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
            text = _written(section, room, count)
            cost = count(f"{text}\n\n") if text else 0
            if cost <= left + own and (cost or not again):
                written[section.heading], costs[section.heading] = text, cost
                left -= cost - own
    parts = [written[section.heading] for section in sections if written.get(section.heading)]
    while parts and count("\n\n".join(parts)) > max_tokens:
        parts.pop()
    return "\n\n".join(parts)


def _written(section: Section, room: int, count: Count) -> str:
    head = f"## {section.heading}\n"
    items = section.write(room - count(head) - 2) if room > 0 else []
    return encodable(head + "\n".join(map(write_item, items))) if items else ""


def write_item(item: str) -> str:
    """An item as a bullet; its further lines are indented."""
    first, *rest = item.strip("\n").split("\n")
    return "\n".join([f"- {first}", *(f"  {line}" if line.strip() else "" for line in rest)])


def newest(items: Sequence[str], room: int, count: Count) -> list[str]:
    """The last items that fit, in their order; one that is too long is skipped."""
    return first_of(items[::-1], room, count)[::-1]


def first_of(items: Sequence[str], room: int, count: Count) -> list[str]:
    """The first items that fit, in their order; one that is too long is skipped."""
    kept: list[str] = []
    for item in items:
        cost = count(write_item(item)) + 1
        if cost <= room:
            kept.append(item)
            room -= cost
        elif room < MIN_ITEM:
            break
    return kept


MIN_ITEM = 8
"""Tokens. With less room, hardly an item fits."""


def cut_middle(text: str, max_tokens: int, count: Count) -> str:
    """The start and the end of the text with `[…]` between them, at most `max_tokens`; two thirds are the start."""
    if count(text) <= max_tokens:
        return text
    bound = min(len(text), 16 * max(0, max_tokens))
    keep = bisect_left(range(1, bound + 1), True, key=lambda size: count(_without_middle(text, size)) > max_tokens)
    shown = _without_middle(text, keep)
    return shown if keep and count(shown) <= max_tokens else ""


_ENDS = re.compile(r"\n|[.!?][\"'”’)*`]*\s|[。！？]")
"""Where a sentence or a line ends."""


def _without_middle(text: str, keep: int) -> str:
    """About `keep` characters of the text, cut between sentences if one ends near, else between words."""
    tail = keep // 3
    start, end = text[: keep - tail], text[len(text) - tail :] if tail else ""
    stops = [match.end() for match in _ENDS.finditer(start, len(start) // 2)]
    start = start[: stops[-1] if stops else max(start.rfind(" "), len(start) - 40)]
    begins = [match.end() for match in _ENDS.finditer(end, 0, len(end) // 2)]
    spaces = [place for mark in " \n" if 0 <= (place := end.find(mark)) < 40]
    end = end[begins[0] if begins else min(spaces, default=0) :]
    return f"{start.rstrip()} […] {end.lstrip()}".rstrip()
