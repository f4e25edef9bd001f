"""Which of the user's requests are withdrawn or changed by later ones."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable

from contextstash.events.pasted_text import without_pasted
from contextstash.events.sentences import sentences

REVISED_SHARE = 0.5
"""A sentence that says that something changes revises a request of which it repeats at least this share of the
words."""

_CHANGE = re.compile(
    r"\b(?:instead|no longer|not any ?more|any ?more|rather than|actually|after all|never ?mind|scratch that"
    r"|forget (?:it|that|about)|changed? (?:my|our) minds?|on second thoughts?|switch(?:ed)? (?:back )?(?:to|from)"
    r"|stattdessen|nicht mehr|doch|finalement|plutôt|en lugar|ya no|mejor)\b|改为|改用|不再|やっぱり|代わりに",
    re.IGNORECASE,
)
_NO_CONTENT = re.compile(
    r"(?:an?|and|any|are|as|at|be|but|by|can(?:not)?|do|does|don|for|from|has|have|i|in|is|it|its|let|me|must|my|need"
    r"|never|no|not|of|on|only|or|our|please|should|so|t|that|the|then|there|these|this|to|us(?:e|ing)|want|we|will|with"
    r"|you|your|always|instead|longer|more|all|after|actually|rather|than|keep|make|sure|s)"
)
_WORD = re.compile(r"[^\W_]\w*(?:[./-]\w+)*")


def _words(decision: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(decision.casefold()) if not _NO_CONTENT.fullmatch(word))


_TAKES_BACK = re.compile(
    r"\W*(?:(?:oh|no|sorry|wait|actually|hmm+|please)[,. ]+){0,2}"
    r"(?:(?:ignore|disregard|forget)(?: about)? (?:the|my|that) (?:last|previous) (?:message|request|one|instruction)"
    r"|(?:ignore|disregard|forget) what i (?:just )?said|never ?mind|scratch that|forget (?:it|that)(?=[^\w ]|$))\b",
    re.IGNORECASE,
)


def takes_back_last(text: str) -> bool:
    """Whether a request withdraws the one before it, such as "ignore my last message"."""
    return bool(_TAKES_BACK.match(text[:200]))


MIN_REVISED_WORDS = 2
"""A request shares at least so many words with the one that it changes. One may be the project's name."""


class Revisable:
    """What a later decision or request may revise, by its words: one that says that something changes, and repeats
    enough of them, at least `least`. It is found by its rarest words, since to compare each with each takes seconds if
    there are a thousand. Each is found once: the first that revises it counts."""

    def __init__(self, words: Iterable[frozenset[str]], least: int = MIN_REVISED_WORDS) -> None:
        self._words = [*words]
        self._least = least
        self._uses = Counter(word for words in self._words for word in words)
        self._with: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, place: int) -> None:
        """Let what is at this place be found from now on."""
        for word in self._rarest(place):
            self._with[word].add(place)

    def take(self, sentences: Iterable[frozenset[str]]) -> list[int]:
        """The places of what was added and is revised by sentences with these words; they are not found again."""
        found = sorted({place for words in sentences for place in self._repeated(words)})
        for place in found:
            for word in self._rarest(place):
                self._with[word].discard(place)
        return found

    def _repeated(self, said: frozenset[str]) -> set[int]:
        near = {place for word in said for place in self._with.get(word, ())}
        return {place for place in near if len(said & self._words[place]) >= self._wanted(self._words[place])}

    def _wanted(self, words: Collection[str]) -> int:
        """How many of these words are repeated at least if they are revised."""
        return max(self._least, math.ceil(REVISED_SHARE * len(words)))

    def _rarest(self, place: int) -> list[str]:
        """So many of the words that who repeats enough of them repeats one of these."""
        words = self._words[place]
        ordered = sorted(words, key=lambda word: (self._uses[word], word))
        return ordered[: max(0, len(words) - self._wanted(words) + 1)]


def says_change(text: str) -> bool:
    """Whether a text says anywhere that something changes."""
    return bool(_CHANGE.search(text))


def revisable_words(request: str) -> frozenset[str]:
    """The words by which a later request may revise this one; none of a question, which decides nothing."""
    return frozenset() if request.endswith(("?", "？")) else _words(request)


def revising_words(request: str) -> list[frozenset[str]]:
    """The words of each sentence of a request that says that something changes. What stands below its first paragraph
    may be pasted, with words of an earlier request, and a wrong mark is worse than none."""
    if not says_change(request):
        return []
    first = without_pasted(request).strip().split("\n\n", 1)[0]
    return [_words(sentence) for sentence in sentences(first) if says_change(sentence)]
