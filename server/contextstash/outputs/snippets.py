"""Search snippets: the part of a text that best shows why it matches a query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from string import ascii_uppercase

from contextstash.safety.sanitize import clip, folded, one_line

MAX_OCCURRENCES = 500
"""How many occurrences of one term are considered. It bounds the work on a text with one word repeated."""

MAX_WORDS = 20
"""How many words of a term that does not occur are searched for. A path has fewer."""

MAX_INDENT = 40
"""Characters before a match up to which its line is shown from its beginning. Usual indentations are shorter."""

WINDOWS = 2
"""How many parts of a text are shown, if the best one lacks a term that another one has."""

MIN_WINDOW = 160
"""Characters of a part below which the text is not shown in several: a line of code and its surroundings."""

_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[\d_./@+-]|(?<=[a-z])[A-Z]")
_SUFFIXES = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")


def snippet(
    text: str,
    terms: Sequence[str],
    max_chars: int = 240,
    *,
    line_breaks: bool = False,
) -> tuple[str, list[str]]:
    """The part of at most `max_chars` characters with the most telling terms, and the terms that occur anywhere in the
    text, as they were passed. If it lacks some of them, two parts of half the size are shown. Each is one line, or with
    `line_breaks` the lines of the text that are not empty, indented as they were.

    A term is searched for as it is and, if that is not found, word by word (then those words of it that occur are
    returned); an English word also by its stem. If no term occurs, the snippet is the start of the text.
    """
    lower = folded(text)
    places: list[tuple[int, int]] = []
    matched: list[str] = []
    weights: list[int] = []
    for number, term in enumerate(dict.fromkeys(terms)):
        occurring = _places(text, lower, term)
        found = [place for some in occurring.values() for place in some]
        places += [(place, number) for place in found]
        matched += [word for word in occurring if word not in matched]
        weights.append(_weight(term, len(found)))
    places.sort()
    write = _lines if line_breaks else _cut
    starts = _starts(places, weights, max_chars)
    if len(starts) == 1:
        return write(text, starts[0], max_chars), matched
    first, second = (write(text, start, max_chars // 2 - 1).strip("…") for start in starts)
    start = "…" if starts[0] else ""
    gap = "\n…\n" if line_breaks else " … "
    return clip(f"{start}{first}{gap}{second}…", max_chars), matched


def _weight(term: str, occurrences: int) -> int:
    """How telling a term is: a name more than a word, and less the more often it occurs."""
    return (200 if _NAME.search(term) else 100) // (1 + occurrences.bit_length())


def _starts(places: Sequence[tuple[int, int]], weights: Sequence[int], width: int) -> list[int]:
    """Where the parts begin that are shown, in the order of the text."""
    best = _best_start(places, weights, width)
    part = width // WINDOWS
    if part < MIN_WINDOW or {term for _, term in places} == _terms_in(places, best, width):
        return [best]
    first = _best_start(places, weights, part)
    shown = _terms_in(places, first, part)
    others = [(place, term) for place, term in places if term not in shown and not first <= place < first + part]
    if not others:
        return [best]
    second = _best_start(others, weights, part)
    return [best] if abs(first - second) < part else sorted((first, second))


def _terms_in(places: Sequence[tuple[int, int]], start: int, width: int) -> set[int]:
    return {term for place, term in places if start <= place < start + width}


def _places(text: str, lower: str, term: str) -> dict[str, list[int]]:
    """Where a term occurs, or if it does not, where each word of it does that occurs."""
    bare = term.strip("\"'`*()[]{},;:")
    if not bare:
        return {}
    whole = _find(text, lower, bare)
    if whole:
        return {term: whole}
    words = _WORD.findall(bare)[:MAX_WORDS]
    found = {term if word == bare else word: _find(text, lower, _stem(word)) for word in words}
    return {word: places for word, places in found.items() if places}


def _find(text: str, lower: str, word: str) -> list[int]:
    """The first positions of a word. One that begins with a letter or digit counts only at the start of a word, also of
    one inside a camelCase name: the index has these too."""
    at_start = word[0].isascii() and word[0].isalnum()
    # str.find is forty times faster than a case-insensitive pattern, with which 60 words in 5 MB took a minute
    wanted = folded(word)
    found: list[int] = []
    place = lower.find(wanted)
    while place >= 0 and len(found) < MAX_OCCURRENCES:
        if not (at_start and place and lower[place - 1].isalnum()) or _is_camel_start(text, place):
            found.append(place)
            place = lower.find(wanted, place + len(wanted))
        else:
            place = lower.find(wanted, place + 1)
    return found


def _is_camel_start(text: str, place: int) -> bool:
    return text[place] in ascii_uppercase and text[place - 1] not in ascii_uppercase


def _stem(word: str) -> str:
    if word.isascii() and word.isalpha():
        for suffix in _SUFFIXES:
            if word.lower().endswith(suffix) and len(word) - len(suffix) >= 4:
                return word[: -len(suffix)]
    return word


def _best_start(places: Sequence[tuple[int, int]], weights: Sequence[int], width: int) -> int:
    """The start of the window with the most telling terms, then the most occurrences; the first one of equals."""
    # Three quarters of the width, so that an eighth on each side is left for the words around the matches.
    reach = max(1, width * 3 // 4)
    best, best_score = 0, (0, 0)
    inside: Counter[int] = Counter()
    left = told = 0
    for count, (place, term) in enumerate(places, 1):
        inside[term] += 1
        told += weights[term] * (inside[term] == 1)
        while place - places[left][0] > reach:
            gone = places[left][1]
            inside[gone] -= 1
            told -= weights[gone] * (not inside[gone])
            left += 1
        score = (told, count - left)
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


def _lines(text: str, start: int, width: int) -> str:
    """The lines from a position on, without what they are all indented by."""
    begin = text.rfind("\n", 0, start) + 1
    is_whole = start - begin <= MAX_INDENT
    start = begin if is_whole else start
    pieces = text[start : start + 4 * width].expandtabs(4).splitlines()
    shown = [(len(piece) - len(piece.lstrip()), one_line(piece, width)) for piece in pieces]
    indented = [(indent, line) for indent, line in shown if line]
    least = min((indent for indent, _ in indented), default=0)
    joined = "\n".join(" " * min(indent - least, MAX_INDENT) + line for indent, line in indented)
    before = "" if is_whole else "…"
    more = "…" if start + 4 * width < len(text) and len(before) + len(joined) < width else ""
    return clip(f"{before}{joined}{more}", width)
