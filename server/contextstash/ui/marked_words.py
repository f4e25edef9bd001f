"""The words of a search in the text that was found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence


def matches(text: str, words: Sequence[str]) -> Iterator[tuple[bool, str]]:
    """The text in parts, each with whether it is one of the words, or a word that begins with one."""
    parts = {part.casefold() for word in words for part in [word, *re.findall(r"\w+", word)]}
    wanted = {part for part in parts if len(part) > 1 or part.isdigit()}
    if not wanted:
        yield False, text
        return
    longest_first = sorted(wanted, key=len, reverse=True)
    pattern = re.compile("|".join(map(_pattern, longest_first)), re.IGNORECASE)
    place = 0
    for found in pattern.finditer(text):
        if found.start() > place:
            yield False, text[place : found.start()]
        yield True, found[0]
        place = found.end()
    if place < len(text):
        yield False, text[place:]


def _pattern(word: str) -> str:
    """A word that begins with a letter is searched for at the start of a word, as the search does."""
    start = r"(?<!\w)" if word[0].isalnum() else ""
    return rf"{start}{re.escape(word)}\w*"
