"""The user's words in a session: what the user said and decided, in order and word for word, and what came of it:
answered, withdrawn, interrupted. They are a part of the session's state (events/state.py).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from contextstash.events.calls import Call
from contextstash.events.requests import APPROVED, SKILL, client_rules, decisions_of, is_interruption
from contextstash.events.sentences import sentences, without_pasted
from contextstash.events.turns import Said, Turn

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
_WORDS_OF = re.compile(r"[^\W_]\w*(?:[./-]\w+)*")
_TAKES_BACK = re.compile(
    r"\W*(?:(?:oh|no|sorry|wait|actually|hmm+|please)[,. ]+){0,2}"
    r"(?:(?:ignore|disregard|forget)(?: about)? (?:the|my|that) (?:last|previous) (?:message|request|one|instruction)"
    r"|(?:ignore|disregard|forget) what i (?:just )?said|never ?mind|scratch that|forget (?:it|that)(?=[^\w ]|$))\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class UserWords:
    """What the user said, in order. `answered` maps an entry to the message with which the assistant ended its turn on
    it; `withdrawn` maps one to the later entry that takes it back, `interrupted` one to the message with which the user
    stopped the work on it. `forgotten` is how many entries after the first are known no more, and the first and the
    last message of these; empty if there are none."""

    entries: tuple[Said, ...] = ()
    answered: Mapping[int, int] = field(default_factory=dict)
    withdrawn: Mapping[int, int] = field(default_factory=dict)
    interrupted: Mapping[int, int] = field(default_factory=dict)
    forgotten: tuple[int, ...] = ()

    @property
    def own(self) -> UserWords:
        """The words without the rules of files, which the client puts into each window itself."""
        return replace(self, entries=tuple(entry for entry in self.entries if not entry.source))

    @property
    def open(self) -> Said | None:
        """The newest entry, if the assistant has not ended its turn on it."""
        last = next((entry for entry in reversed(self.entries) if not entry.source), None)
        return None if last is None or last.seq in self.answered else last

    @property
    def under_way(self) -> list[Said]:
        """The entries behind the newest one that is answered or withdrawn, if the assistant has not answered the newest
        entry of all."""
        found: list[Said] = []
        for entry in reversed(self.entries):
            if entry.seq in self.answered or entry.seq in self.withdrawn:
                break
            if not entry.source and not entry.stopped:
                found.insert(0, entry)
        return found


@dataclass(frozen=True, slots=True)
class Newest:
    """The assistant's newest message, and whether it has no call: it then waits for the user."""

    seq: int = -1
    ends: bool = False


def words_with(
    before: UserWords, turns: Sequence[Turn], newest: Newest, requests: Iterable[Said], calls: Iterable[Call]
) -> UserWords:
    """The words `before` some turns, with what the user says in them. `newest` is the assistant's newest message before
    the turns; `requests` and `calls` are theirs."""
    known = {entry.source for entry in before.entries}
    found = _entries(turns, requests, calls)
    entries = [entry for entry in found if not entry.source or entry.source not in known]
    answered, stopped = _ends(turns, entries, before.open, newest)
    return UserWords(
        (*before.entries, *entries),
        {**before.answered, **answered},
        {**before.withdrawn, **_withdrawn(before, entries)},
        {**before.interrupted, **stopped},
        before.forgotten,
    )


def words_since(words: UserWords, seq: int) -> UserWords:
    """The words behind message `seq`, with the marks that were not known there: an entry is answered once another one
    follows."""
    last = max((entry.seq for entry in words.own.entries if entry.seq <= seq), default=-1)
    return UserWords(
        tuple(entry for entry in words.entries if entry.seq > seq),
        {each: at for each, at in words.answered.items() if each >= last},
        {each: by for each, by in words.withdrawn.items() if by > seq},
        {each: at for each, at in words.interrupted.items() if at > seq},
        words.forgotten if words.forgotten[2:] > (seq,) else (),
    )


def is_plan(entry: Said) -> bool:
    """Whether the user approved a plan of the agent."""
    return entry.text.startswith(APPROVED)


def _entries(turns: Sequence[Turn], requests: Iterable[Said], calls: Iterable[Call]) -> list[Said]:
    """The user's messages and decisions in dialogs, in order; no skill that the agent loaded. Behind the first of them
    the rules of files that the client put into the conversation, each file's once."""
    found = [each for call in calls for each in decisions_of(call)]
    found += [request for request in requests if not request.command.startswith(SKILL)]
    found.sort(key=lambda entry: entry.seq)
    first = min((entry.seq for entry in found), default=0)
    found += _rules_of_files(turns)
    found.sort(key=lambda entry: (max(entry.seq, first), bool(entry.source)))
    return [entry for entry in found if entry.text]


def _rules_of_files(turns: Sequence[Turn]) -> Iterator[Said]:
    seen: set[str] = set()
    for turn in turns:
        for text in turn.texts if turn.role == "user" else ():
            for name, said in client_rules(text):
                if name not in seen:
                    yield Said(turn.seq, said, source=name)
                seen.add(name)


def _ends(
    turns: Sequence[Turn], entries: Sequence[Said], before: Said | None, newest: Newest
) -> tuple[dict[int, int], dict[int, int]]:
    """The entries on which the assistant ended its turn, that is, said something without a call before the user's next
    message, and those on which the user interrupted it: those before the message that says so. The newest entry has no
    next one, so more may follow."""
    asked = [*([before] if before else []), *(entry for entry in entries if not entry.source)]
    told = {entry.seq for entry in entries if entry.stopped}
    starts = [entry.seq for entry in asked]
    last: dict[int, tuple[int, bool]] = {}
    if before and newest.seq > before.seq:
        last[before.seq] = (newest.seq, newest.ends)
    stopped: dict[int, int] = {}
    place = -1
    for turn in turns:
        while place + 1 < len(starts) and starts[place + 1] <= turn.seq:
            place += 1
        if turn.role == "assistant" and place >= 0:
            last[starts[place]] = (turn.seq, turn.ends_work)
        elif turn.seq not in told and any(map(is_interruption, turn.texts)):
            stopped |= dict.fromkeys([seq for seq in starts if seq < turn.seq][-1:], turn.seq)
    return {seq: at for seq, (at, ended) in last.items() if ended and seq != starts[-1] and seq not in stopped}, stopped


MAX_COMPARED = 100
"""Earlier requests, the newest, that one may revise: it bounds the work if there are thousands."""


def _withdrawn(before: UserWords, entries: Sequence[Said]) -> dict[int, int]:
    """The entries that the new `entries` withdraw, each with the first that does: an entry withdraws the one before it,
    if it says so, or those that it revises; an approved plan those before it."""
    old = [entry for entry in before.entries if not entry.source]
    known = [*old, *(entry for entry in entries if not entry.source)]

    withdrawn: dict[int, int] = {}
    for place in range(len(old), len(known)):
        for at in _taken_back(known, place):
            if known[at].seq not in before.withdrawn:
                withdrawn.setdefault(known[at].seq, known[place].seq)
    return withdrawn


def _taken_back(known: Sequence[Said], place: int) -> list[int]:
    """The places of the entries that the one at `place` withdraws."""
    text, near = known[place].text, range(max(0, place - MAX_COMPARED), place)
    if is_plan(known[place]):
        return [at for at in range(place) if is_plan(known[at])]
    if known[place].command:
        return []
    if _TAKES_BACK.match(text[:200]):
        return [*near[-1:]]
    # What stands below the first paragraph may be pasted, with words of an earlier request.
    first = without_pasted(text).strip().split("\n\n", 1)[0] if _CHANGE.search(text) else ""
    said = [_words(sentence) for sentence in sentences(first) if _CHANGE.search(sentence)]
    # A question decides nothing, and a reply and a command have few words of their own.
    old = {at: known[at].text for at in near if not (known[at].command or known[at].asked) and said}
    words = {at: _words(text) for at, text in old.items() if not text.endswith(("?", "？"))}
    return [
        at
        for at, of in words.items()
        if any(len(each & of) >= max(MIN_REVISED_WORDS, math.ceil(REVISED_SHARE * len(of))) for each in said)
    ]


@lru_cache(maxsize=4 * MAX_COMPARED)
def _words(text: str) -> frozenset[str]:
    return frozenset(word for word in _WORDS_OF.findall(text.casefold()) if not _NO_CONTENT.fullmatch(word))
