"""Search snippets: the part of a text that best shows why it matches a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from string import ascii_uppercase

from contextstash.context.text.sanitize import clip, one_line

MAX_OCCURRENCES = 500
"""How many occurrences of one term are considered. It bounds the work on a text with one word repeated."""

MAX_WORDS = 20
"""How many words of a term that does not occur are searched for. A path has fewer."""

MAX_INDENT = 40
"""Characters before a match up to which its line is shown from its beginning. Usual indentations are shorter."""

_WORD = re.compile(r"\w+")
_START = r"(?:(?<![^\W_])|(?-i:(?<![A-Z])(?=[A-Z])))"
_SUFFIXES = ("ations", "ation", "ings", "ing", "edly", "ied", "ies", "ed", "es", "ly", "s", "e")


def snippet(
    text: str, terms: Sequence[str], max_chars: int = 240, *, line_breaks: bool = False
) -> tuple[str, list[str]]:
    """The part of at most `max_chars` characters with the most terms, and the terms that occur anywhere in the text, as
    they were passed. The part is one line, or with `line_breaks` the lines of the text that are not empty, indented as
    they were.

    A term is searched for as it is and, if that is not found, word by word (then those words of it that occur are
    returned); an English word also by its stem. If no term occurs, the snippet is the start of the text.
    """
    folded = _folded(text)
    places: list[tuple[int, int]] = []
    matched: list[str] = []
    for number, term in enumerate(dict.fromkeys(terms)):
        for word, found in _places(text, folded, term).items():
            places += [(place, number) for place in found]
            matched += [] if word in matched else [word]
    start = _best_start(sorted(places), max_chars)
    return (_lines(text, start, max_chars) if line_breaks else _cut(text, start, max_chars)), matched


def _places(text: str, folded: str | None, term: str) -> dict[str, list[int]]:
    """Where a term occurs, or if it does not, where each word of it does that occurs."""
    bare = term.strip("\"'`*()[]{},;:")
    if not bare:
        return {}
    whole = _find(text, folded, bare)
    if whole:
        return {term: whole}
    words = _WORD.findall(bare)[:MAX_WORDS]
    found = {term if word == bare else word: _find(text, folded, _stem(word)) for word in words}
    return {word: places for word, places in found.items() if places}


def _folded(text: str) -> str | None:
    """The text in lower case; None if its positions then differ from those in the text (İ becomes two characters)."""
    folded = text.lower()
    return folded if len(folded) == len(text) else None


def _find(text: str, folded: str | None, word: str) -> list[int]:
    """The first positions of a word. One that begins with a letter or digit counts only at the start of a word, also of
    one inside a camelCase name: the index has these too."""
    at_start = word[0].isascii() and word[0].isalnum()
    if folded is None:
        return _find_by_pattern(text, word, at_start)
    # str.find is forty times faster than a case-insensitive pattern, with which 60 words in 5 MB took a minute
    wanted = word.lower()
    found: list[int] = []
    place = folded.find(wanted)
    while place >= 0 and len(found) < MAX_OCCURRENCES:
        if not (at_start and place and folded[place - 1].isalnum()) or _is_camel_start(text, place):
            found.append(place)
            place = folded.find(wanted, place + len(wanted))
        else:
            place = folded.find(wanted, place + 1)
    return found


def _is_camel_start(text: str, place: int) -> bool:
    return text[place] in ascii_uppercase and text[place - 1] not in ascii_uppercase


def _find_by_pattern(text: str, word: str, at_start: bool) -> list[int]:
    found = []
    for match in re.finditer((_START if at_start else "") + re.escape(word), text, re.IGNORECASE):
        found.append(match.start())
        if len(found) == MAX_OCCURRENCES:
            break
    return found


def _stem(word: str) -> str:
    if word.isascii() and word.isalpha():
        for suffix in _SUFFIXES:
            if word.lower().endswith(suffix) and len(word) - len(suffix) >= 4:
                return word[: -len(suffix)]
    return word


def _best_start(places: Sequence[tuple[int, int]], width: int) -> int:
    """The start of the window with the most different terms, then the most occurrences; the first one of equals."""
    # Three quarters of the width, so that an eighth on each side is left for the words around the matches.
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
