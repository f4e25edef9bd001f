"""Search snippets: the part of a text that best shows why it matches a query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from contextstash.safety.sanitize import folded, one_line

MAX_OCCURRENCES = 500
"""How many occurrences of one term are considered. It bounds the work on a text with one word repeated."""

MAX_WORDS = 20
"""How many words of a term that does not occur are searched for. A path has fewer."""

_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[\d_./@+-]|(?<=[a-z])[A-Z]")
_STEM = re.compile(r"([A-Za-z]{4,}?)(?:ations?|ings?|edly|i?ed|i?es|ly|s|e)")


def snippet(text: str, terms: Sequence[str], max_chars: int = 240) -> tuple[str, list[str]]:
    """The part with the most telling terms, as one line of at most `max_chars` characters; and the terms that occur
    anywhere in the text, as they were passed.

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
    return _cut(text, _best_start(sorted(places), weights, max_chars), max_chars), matched


def _weight(term: str, occurrences: int) -> int:
    """How telling a term is: a name more than a word, and less the more often it occurs."""
    return (200 if _NAME.search(term) else 100) // (1 + occurrences.bit_length())


def _places(text: str, lower: str, term: str) -> dict[str, list[int]]:
    """Where a term occurs, or if it does not, where each word of it does that occurs."""
    bare = term.strip("\"'`*()[]{},;:")
    if not bare:
        return {}
    whole = _find(text, lower, bare)
    if whole:
        return {term: whole}
    words = _WORD.findall(bare)[:MAX_WORDS]
    stems = {word: stem[1] if (stem := _STEM.fullmatch(word)) else word for word in words}
    found = {term if word == bare else word: _find(text, lower, stems[word]) for word in words}
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
        is_inside = at_start and place and lower[place - 1].isalnum()
        if not is_inside or (text[place].isupper() and not text[place - 1].isupper()):
            found.append(place)
            place += len(wanted) - 1
        place = lower.find(wanted, place + 1)
    return found


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
