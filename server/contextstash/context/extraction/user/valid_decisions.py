"""The user's decisions and rules as they are valid at the end: a revised one is left out."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence

from contextstash.context.extraction.actions import Action
from contextstash.context.extraction.summary_format import merged
from contextstash.context.extraction.user.requests_and_rules import (
    APPROVED,
    Request,
    dialog_decisions,
    is_strong_rule,
    reply_lines,
    user_rules,
)
from contextstash.context.text.imitations import defused
from contextstash.context.text.pasted_text import without_pasted
from contextstash.context.text.sentences import sentences

REVISED_SHARE = 0.5
"""A sentence that says that something changes revises a decision of which it repeats at least this share of the
words."""


def weighted_decisions(
    before: Sequence[str], requests: Sequence[Request], actions: Sequence[Action], shown: str
) -> dict[str, float]:
    """The decisions in order, each with its weight: strong rules and dialogs first, then newer ones. `before` are those
    of earlier summaries; rules that are in `shown` are left out."""
    new: list[tuple[int, str, float]] = []
    for request in requests:
        if request.is_reply:
            new += [(request.seq, line, 1.0) for line in reply_lines(request)]
        else:
            new += [(request.seq, defused(rule), 2.0 * strong) for rule, strong in user_rules(request)]
    new += [(seq, line, 2.0) for seq, line in dialog_decisions(actions)]
    new.sort(key=lambda entry: entry[0])
    weights = {line: weight for _, line, weight in new}
    lines = valid(merged(before, [line for _, line, _ in new]))
    return {
        line: weights.get(line, _old_weight(line)) + place / (len(lines) + 1)
        for place, line in enumerate(lines)
        if line not in weights or line not in shown
    }


def _old_weight(line: str) -> float:
    """About the weight that the line had when it was new."""
    return 1.0 if line.startswith(("Asked “", "The user said “")) else 2.0 * is_strong_rule(line)


def valid(decisions: Sequence[str]) -> list[str]:
    """The decisions, oldest first, without those that a later one revises."""
    words = [_words(decision) for decision in decisions]
    subjects = [_subject(decision) for decision in decisions]
    newest = {about: place for abouts in (words, subjects) for place, about in enumerate(abouts) if about}
    earlier = Revisable(words, least=1)
    revised: set[int] = set()
    for place, decision in enumerate(decisions):
        if says_change(decision):
            revised.update(earlier.take([words[place]]))
        earlier.add(place)
    return [
        decision
        for place, decision in enumerate(decisions)
        if place not in revised and newest.get(words[place], place) == newest.get(subjects[place], place) == place
    ]


_QUESTION = re.compile(r"Asked “(.+?)” the user answered ", re.DOTALL)
_ANSWER = re.compile(r"The user answered: (.+)", re.DOTALL)
_ANSWERED = re.compile(r'"([^"]+)"="')


def _subject(decision: str) -> str:
    """What was decided, if the line says it: only the newest answer to the same question is valid, and only the newest
    plan."""
    if asked := _QUESTION.match(decision):
        return asked.group(1).casefold()
    if answer := _ANSWER.match(decision):
        return "\n".join(_ANSWERED.findall(answer.group(1))).casefold()
    return APPROVED if decision.startswith(APPROVED) else ""


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
