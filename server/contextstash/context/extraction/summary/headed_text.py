"""Text under headings, such as a summary that a client or a model wrote, and how it is shortened at its paragraphs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

Count = Callable[[str], int]

GAP = "[…]"
"""Stands in a line of its own for paragraphs that were left out."""

_HEADING = re.compile(r"(?:(#{1,4}) +|\d{1,2}\. +(?=[^\n]{3,60}:\W*$)|(\*\*)(?=[^\n]{3,60}\*\*\W*$))")
_NUMBERED, _BOLD = 5, 6
"""The levels of headings such as `3. Errors:` and `**Errors**`; those of Markdown have 1 to 4."""

_FENCE = "```"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a text. `level` is that of a heading, 0 for other lines; `fenced` lines belong to a block of code."""

    text: str
    level: int = 0
    fenced: bool = False

    @property
    def indent(self) -> int:
        return len(self.text) - len(self.text.lstrip())


def heading_level(line: str) -> int:
    """The level of a heading, 1 for the highest; 0 if the line is none."""
    found = _HEADING.match(line)
    if not found:
        return 0
    return len(found[1]) if found[1] else _BOLD if found[2] else _NUMBERED


def is_fence(line: str) -> bool:
    """Whether a block of code begins or ends here."""
    return line.lstrip().startswith(_FENCE)


def lines_of(text: str) -> Iterator[Line]:
    """The lines of a text. In a block of code there are no headings; a fence without an end begins none."""
    lines = text.split("\n")
    left = sum(map(is_fence, lines))
    inside = False
    for line in lines:
        if is_fence(line):
            left -= 1
            fenced = inside or left > 0
            inside = not inside and left > 0
            yield Line(line, fenced=fenced)
        else:
            yield Line(line, 0 if inside else heading_level(line), inside)


@dataclass(frozen=True, slots=True)
class _Part:
    """A paragraph or an entry of a list. `above` are the lines without which it cannot be understood: the headings,
    and of an entry the lines that introduce it. With `follows`, no blank line stands before it."""

    above: tuple[str, ...]
    text: str
    follows: bool = False


def cut_at_headings(text: str, max_tokens: int, count: Count, shorten: Callable[[str, int, Count], str]) -> str:
    """As many paragraphs as fit, each below its headings, two thirds from the start. If none fits, one that `shorten`
    shortens; empty if that does not fit either."""
    if count(text) <= max_tokens:
        return text
    parts = [
        piece
        for part in _parts(text)
        for piece in (_split(part, MAX_DEPTH) if count(part.text) > max_tokens // 4 else [part])
    ]
    chosen = _chosen(parts, max_tokens, count)
    while not all(_is_mark(parts[place].text) for place in chosen):
        shown = _joined(parts, chosen)
        if count(shown) <= max_tokens:
            return shown
        chosen.pop()
    part = next((part for part in parts if _FENCE not in part.text), None)
    head = "".join(f"{line}\n" for line in part.above) if part else ""
    short = shorten(part.text, max_tokens - count(head), count) if part else ""
    return f"{head}{short}" if short and count(f"{head}{short}") <= max_tokens else ""


MAX_DEPTH = 3
"""Levels of a nested list at which a long paragraph is divided."""


def _parts(text: str) -> list[_Part]:
    """The paragraphs. What is indented below the first line of one, or introduced by its last line, belongs to it."""
    found: list[_Part] = []
    above: list[Line] = []
    block: list[Line] = []
    blank = 0
    for line in lines_of(text):
        if not line.text.strip() and not line.fenced:
            blank += 1
            continue
        ends = (
            blank
            and block
            and not (line.indent > block[0].indent or _introduces(block[-1].text) or block[-1].fenced < line.fenced)
        )
        if block and (line.level or ends):
            found.append(_part(above, block))
            block = []
        if line.level:
            above = [*(each for each in above if each.level < line.level), line]
        else:
            block += [*([Line("")] * blank if block else ()), line]
        blank = 0
    return [*found, _part(above, block)] if block else found


def _part(above: Sequence[Line], block: Sequence[Line]) -> _Part:
    text = "\n".join(line.text for line in block)
    return _Part(() if _is_mark(text) else tuple(line.text for line in above), text)


def _is_mark(text: str) -> bool:
    return text == GAP or (text.startswith("[left out: ") and "\n" not in text)


def _introduces(line: str) -> bool:
    return line.rstrip(" *_").endswith(":")


def _split(part: _Part, depth: int) -> list[_Part]:
    """The part divided before its lines with the least indentation. A block of code stays with the line before it."""
    lines = list(lines_of(part.text))
    least = min((line.indent for line in lines if line.text.strip() and not line.fenced), default=-1)
    pieces: list[list[str]] = []
    for line in lines:
        if not pieces or (line.text.strip() and not line.fenced and line.indent == least):
            pieces.append([])
        pieces[-1].append(line.text)
    head, *rest = pieces
    if is_fence(head[0]) or not depth:
        return [part]
    if not rest:
        below = "\n".join(head[1:])
        inner = _Part((*part.above, head[0]), below, follows=True)
        return _split(inner, depth - 1) if below.strip() and _FENCE not in below else [part]
    if len(head) == 1 and _introduces(head[0]):
        above, pieces = (*part.above, head[0]), rest
    else:
        above = part.above
    return [_Part(above, "\n".join(piece).rstrip(), place > 0) for place, piece in enumerate(pieces)]


def _chosen(parts: Sequence[_Part], max_tokens: int, count: Count) -> list[int]:
    """The places of the parts that fit, as they are taken: from the start for two thirds of the room, then from the
    end."""
    taken: dict[int, None] = {}
    headed: set[tuple[str, ...]] = set()
    spent = 0
    for places, room in ((range(len(parts)), max_tokens * 2 // 3), (reversed(range(len(parts))), max_tokens)):
        for place in places:
            above = parts[place].above
            heads = [above[:depth] for depth in range(1, len(above) + 1) if above[:depth] not in headed]
            cost = count(parts[place].text) + _AROUND + sum(count(head[-1]) + 1 for head in heads)
            if place not in taken and spent + cost <= room:
                taken[place] = None
                headed.update(heads)
                spent += cost
    return list(taken)


_AROUND = 4
"""Tokens of the line breaks around a paragraph and of the mark for what is left out before it."""


def _joined(parts: Sequence[_Part], chosen: Sequence[int]) -> str:
    """The chosen parts in their order, each below its headings, with marks where others are left out."""
    text, last = "", -1
    above: tuple[str, ...] = ()
    for place in sorted(chosen):
        part = parts[place]
        if (place > last + 1 or part.text == GAP) and not text.endswith(GAP):
            text += f"\n\n{GAP}"
        if part.text != GAP:
            same = next((at for at, (old, new) in enumerate(zip(above, part.above, strict=False)) if old != new), None)
            head = part.above[min(len(above), len(part.above)) if same is None else same :]
            near = part.follows and place == last + 1
            text += ("\n" if near else "\n\n") + "\n".join([*head, part.text])
            above = above if _is_mark(part.text) else part.above
        last = place
    return f"{text}\n\n{GAP}".strip() if last + 1 < len(parts) and not text.endswith(GAP) else text.strip()
