"""Fills a budget of tokens with sections: each gets its share at first, what it leaves goes to the others in order."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from contextstash.events.sentences import GAP, LIST_MARK
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


def newest(items: Sequence[str], room: int, count: Count) -> list[str]:
    """The last items that fit, in their order; one that is too long is skipped."""
    return first_of(items[::-1], room, count)[::-1]


def newest_cut(
    items: Sequence[str], bounds: Sequence[int], room: int, count: Count, first: Sequence[int] = ()
) -> list[str]:
    """The last items, each in at most so many tokens as its bound says, in their order, as far as they fit: of one that
    does not, what fits; none that is older, but short, stands in its place. The last ones of `first`, places of short
    items, may take half of the room before."""

    def cost(text: str) -> int:
        return item_tokens(text, count)

    kept: dict[int, str] = {}
    left = room
    for place in reversed(first):
        if cost(items[place]) <= left - room // 2:
            kept[place] = items[place]
            left -= cost(items[place])
    for place in reversed(range(len(items))):
        if place in kept:
            continue
        most = min(bounds[place], left)
        shown = cut_middle(items[place], most, cost) if most >= MIN_CUT or cost(items[place]) <= most else ""
        kept |= {place: shown} if shown else {}
        left -= cost(shown) if shown else 0
        if shown != items[place] and most < bounds[place]:
            break
    return [kept[place] for place in sorted(kept)]


MIN_CUT = 40
"""Tokens to which an item may be shortened: two sentences."""


def first_of(items: Sequence[str], room: int, count: Count) -> list[str]:
    """The first items that fit, in their order; one that is too long is skipped."""
    kept: list[str] = []
    for item in items:
        cost = item_tokens(item, count)
        if cost <= room:
            kept.append(item)
            room -= cost
    return kept


def cut_middle(text: str, max_tokens: int, count: Count) -> str:
    """The text in at most `max_tokens`: its beginning, its end, and of what is between first the sentences that name
    something or hold a number."""
    if count(text) <= max_tokens:
        return text
    ends = [0, *(end.end() for end in _END.finditer(text)), len(text)]
    pieces = [text[start:end] for start, end in pairwise(ends) if text[start:end].strip()]
    if len(pieces) > 1 and _OPENING.fullmatch(pieces[0]):
        pieces[:2] = ["".join(pieces[:2])]
    last = len(pieces) - 1

    def rank(at: int) -> tuple[bool, bool, bool, bool, int]:
        return at > 0, at < last, not LIST_MARK.match(pieces[at]), not _TELLS.search(pieces[at]), at

    ranked = sorted(range(len(pieces)), key=rank)
    heads = _heads(pieces)
    kept: set[int] = set()
    left = max_tokens
    for place in ranked:
        new = {place, heads.get(place, place)} - kept
        alone = bool(kept) and place - 1 not in kept and place + 1 not in kept
        cost = sum(count(pieces[each]) for each in new) + GAP_TOKENS * alone
        if cost <= left:
            kept |= new
            left -= cost
        elif place == ranked[0]:
            break
    shown = _with_gaps(pieces, kept)
    while kept and count(shown) > max_tokens:
        kept.remove(next(place for place in reversed(ranked) if place in kept))
        shown = _with_gaps(pieces, kept)
    return shown if kept else _without_middle(text, max_tokens, count)


def _heads(pieces: Sequence[str]) -> dict[int, int]:
    """The place of the heading of each item of a list: below another one, it would say something else."""
    found: dict[int, int] = {}
    head = -1
    for place, piece in enumerate(pieces):
        if piece.rstrip().endswith(":"):
            head = place
        elif not LIST_MARK.match(piece):
            head = -1
        elif head >= 0:
            found[place] = head
    return found


_OPENING = re.compile(r"(?:\(\d+\) )?\S+(?: \S+){0,2}\s*")
"""An opening such as "(12) Done." or "You're right.", which says nothing without what follows it."""

GAP_TOKENS = 3
"""What the mark of a gap takes."""

_GAPS = re.compile(rf"{re.escape(GAP)}(?:\s*{re.escape(GAP)})+")
"""A gap beside one that the text had."""

_END = re.compile(r"\n+|(?<!^\d)(?<!^\d\d)[.!?][\"'”’)*`]*\s+|[。！？]", re.MULTILINE)
"""Where a sentence or a line ends; not behind the number of an item of a list."""

_TELLS = re.compile(r"\d|`|\w/\w|\w_\w|[a-z][A-Z]|\b(?:not|never|fail\w*|pass\w*|fixed|remain\w*|must|next|but)\b")
"""What a sentence has that says what was found or done: a name, a path, a number, an outcome."""


def _with_gaps(pieces: Sequence[str], kept: Collection[int]) -> str:
    parts: list[str] = []
    for place, piece in enumerate(pieces):
        if place in kept:
            parts.append(piece)
        elif not parts or place - 1 in kept:
            parts.append(GAP)
        if place not in kept and place + 1 in kept:
            parts.append("\n" if piece.endswith("\n") else " ")
    return _GAPS.sub(GAP, "".join(parts).rstrip())


_WORD_BEGUN, _WORD_REST = re.compile(r"(?<=\s)\S{1,40}\Z"), re.compile(r"\A\S{1,40}(?=\s)")
"""Parts of words at a cut."""


def _without_middle(text: str, max_tokens: int, count: Count) -> str:
    """The start and the end of a text without sentences that fit, with `[…]` between them."""

    def cut(size: int) -> str:
        head, tail = text[: size - size // 3], text[len(text) - size // 3 :]
        return f"{_WORD_BEGUN.sub('', head).rstrip()} […] {_WORD_REST.sub('', tail).lstrip()}".rstrip()

    bound = min(len(text), 16 * max(0, max_tokens))
    keep = bisect_left(range(1, bound + 1), True, key=lambda size: count(cut(size)) > max_tokens)
    shown = cut(keep)
    return shown if keep and count(shown) <= max_tokens else ""
