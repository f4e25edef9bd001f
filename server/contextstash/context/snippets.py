"""Snippets: the part of a text that best shows why it was found."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextstash.context.oneline import one_line

OCCURRENCES = 500
"""How many occurrences of one term are looked at."""

_WORD = re.compile(r"\w+")
_SUFFIXES = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")


def snippet(text: str, terms: Sequence[str], max_chars: int = 240) -> tuple[str, list[str]]:
    """The window of at most `max_chars` characters with the most of the terms, in one line, and the terms
    that occur anywhere in the text, as they were given.

    A term is found as it stands or, failing that, by its words; an English word also by its stem. The start
    of the text where no term occurs.
    """
    places: list[tuple[int, int]] = []
    matched: list[str] = []
    for number, term in enumerate(dict.fromkeys(terms)):
        found = _places(text, term)
        places += [(place, number) for place in found]
        if found:
            matched.append(term)
    start = _best_start(sorted(places), max_chars)
    return _cut(text, start, max_chars), matched


def _places(text: str, term: str) -> list[int]:
    bare = term.strip("\"'`*()[]{},;:")
    if not bare:
        return []
    whole = _find(text, re.escape(bare))
    if whole:
        return whole
    return [place for word in _WORD.findall(bare)[:20] for place in _find(text, _stem_pattern(word))]


def _find(text: str, pattern: str) -> list[int]:
    boundary = r"(?<![^\W_])" if pattern[0].isascii() and pattern[0].isalnum() else ""
    found = []
    for match in re.finditer(boundary + pattern, text, re.IGNORECASE):
        found.append(match.start())
        if len(found) == OCCURRENCES:
            break
    return found


def _stem_pattern(word: str) -> str:
    if word.isascii() and word.isalpha():
        for suffix in _SUFFIXES:
            if word.lower().endswith(suffix) and len(word) - len(suffix) >= 4:
                return re.escape(word[: -len(suffix)])
    return re.escape(word)


def _best_start(places: Sequence[tuple[int, int]], width: int) -> int:
    """Where the window begins that holds most different terms, then most occurrences; the earliest of
    equals."""
    reach = max(1, width * 3 // 4)
    best, best_score = 0, (0, 0)
    inside: dict[int, int] = {}
    left = 0
    for place, term in places:
        inside[term] = inside.get(term, 0) + 1
        while place - places[left][0] > reach:
            gone = places[left][1]
            inside[gone] -= 1
            if not inside[gone]:
                del inside[gone]
            left += 1
        score = (len(inside), sum(inside.values()))
        if score > best_score:
            best, best_score = places[left][0], score
    return max(0, best - width // 8)


def _cut(text: str, start: int, width: int) -> str:
    if start:
        space = re.search(r"\s", text[start : start + 24])
        start += space.end() if space and start + space.end() < len(text) else 0
    before = "…" if start else ""
    room = max(0, width - len(before))
    line = one_line(text[start : start + 4 * width], room)
    if start + 4 * width < len(text) and not line.endswith("…"):
        line = line[: max(0, room - 1)] + "…" * (room > 0)
    return (before + line)[:width]
