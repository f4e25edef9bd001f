"""Which of the user's requests are withdrawn or changed by later ones."""

from __future__ import annotations

import math
import re

from contextstash.events.pasted_text import without_pasted
from contextstash.events.sentences import sentences

REVISED_SHARE, MIN_REVISED_WORDS = 0.5, 2
"""A sentence that says that something changes revises a request of which it repeats at least this share of the words,
and so many words: one may be the project's name."""

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
_TAKES_BACK = re.compile(
    r"\W*(?:(?:oh|no|sorry|wait|actually|hmm+|please)[,. ]+){0,2}"
    r"(?:(?:ignore|disregard|forget)(?: about)? (?:the|my|that) (?:last|previous) (?:message|request|one|instruction)"
    r"|(?:ignore|disregard|forget) what i (?:just )?said|never ?mind|scratch that|forget (?:it|that)(?=[^\w ]|$))\b",
    re.IGNORECASE,
)


def takes_back_last(text: str) -> bool:
    """Whether a request withdraws the one before it, such as "ignore my last message"."""
    return bool(_TAKES_BACK.match(text[:200]))


def revisable_words(request: str) -> frozenset[str]:
    """The words by which a later request may revise this one; none of a question, which decides nothing."""
    return frozenset() if request.endswith(("?", "？")) else _words(request)


def revising_words(request: str) -> list[frozenset[str]]:
    """The words of each sentence of a request that says that something changes. What stands below its first paragraph
    may be pasted, with words of an earlier request, and a wrong mark is worse than none."""
    if not _CHANGE.search(request):
        return []
    first = without_pasted(request).strip().split("\n\n", 1)[0]
    return [_words(sentence) for sentence in sentences(first) if _CHANGE.search(sentence)]


def revises(sentence: frozenset[str], earlier: frozenset[str]) -> bool:
    """Whether a sentence that says that something changes repeats enough of the words of an earlier request."""
    return len(sentence & earlier) >= max(MIN_REVISED_WORDS, math.ceil(REVISED_SHARE * len(earlier)))


def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORD.findall(text.casefold()) if not _NO_CONTENT.fullmatch(word))
