"""Ranks the matches of a query: their weights; a call and its output are one hit, and pieces of one text are too. Pure,
and the same for every store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from math import log
from typing import NamedTuple

from contextstash_storage.documents import TextKind

CALL_WEIGHT = 10.0
"""How much a word in a call's arguments counts, where one in a text counts 1. Of 10, 15 and 30 the best recall, by
0.5 points, on half of the recorded sessions (outputs that were fetched again: docs/measured.md)."""

PAIR_WEIGHT = 3.0
"""How much the score of a call counts for its output, where the output's own counts 1; 2, 3 and 5 were tried."""

CALL_WORDS = 30
"""The score of a call with more words (a patch, a script, the text of a file) counts less for its output, in inverse
proportion: it names much that its output does not hold. Of recorded calls half have up to 19 words, three quarters up
to 44. Of 15, 20, 30, 40 and none, on half of the recorded sessions: an agent that fetches an output again and searches
with its own words finds it first in 52 instead of 33 % of the cases (docs/measured.md)."""

OUTPUT_CHARACTERS = 200
"""The score of a call counts half for an output with fewer characters: who looks for what a command has shown is not
helped by "Done". 400 finds fewer of the outputs that are fetched again."""


WHOLE_WEIGHT = 100.0
"""By what the score of a text with all terms is multiplied, so that it comes before those with some of them: an
identifier as a whole before calls with half of it, which CALL_WEIGHT and PAIR_WEIGHT make 30 times as heavy."""

NEIGHBOR_WEIGHT = 0.4
"""How much of the scores of the messages before and after a message is added to its own: in a conversation the words
of a question are often in another message than its answer. Of 0, 0.3, 0.4 and 0.5: within 0.5 points but for 0."""

SAME_LINES = 0.6
"""An output with this share of its lines in a better hit is left out. 0.6, 0.7 and 0.8 were tried."""

COMPARED_CHARACTERS = 20_000
"""How much of an output is compared with those of better hits; that takes about 0.2 ms."""

MIN_LINE = 13
"""Shorter lines (brackets, blank ones) are in many outputs that are not the same."""

_LINE_NUMBER = re.compile(r"\d+[→\t: |]+")

LEAST_RARITY = 1e-6
"""The rarity of a word that is in half of the entries or more, as in FTS5's bm25 function."""


class Match(NamedTuple):
    """A row of the index that matches: a piece of a message's block, or a call that is filed under its output's place
    and was made at the place numbered `call`, with so many words; and what is stored of the output that is there, if
    one is."""

    score: float
    message: int
    session: int
    session_id: str
    seq: int
    block: int
    piece: int
    kind: TextKind
    call: int | None
    words: int
    created: int
    handle: str | None
    tool: str
    argument: str
    characters: int


class RankedHit(NamedTuple):
    """A hit: the match whose piece is shown, and the number of the call's place if that matches too."""

    score: float
    match: Match
    call: int | None = None

    @property
    def is_output(self) -> bool:
        return self.match.handle is not None


Best = dict[tuple[int, int], Match]
"""The best match of each block of each message."""


def ranked(matches: Iterable[Match], said_weight: float = 1.0) -> list[RankedHit]:
    """The hits, best first; of equals the newest. What was said counts `said_weight` times."""
    best: dict[TextKind, Best] = {kind: {} for kind in TextKind}
    for match in matches:
        place, known = (match.message, match.block), best[match.kind]
        if place not in known or match.score > known[place].score:
            known[place] = match
    calls = best[TextKind.CALL]
    alone = [RankedHit(PAIR_WEIGHT * each.score, each, each.call) for each in calls.values() if each.handle is None]
    said = _smoothed(best[TextKind.TEXT].values(), said_weight)
    return sorted([*said, *_grouped(best[TextKind.OUTPUT], calls), *alone], key=lambda hit: -hit.score)


def _smoothed(matches: Iterable[Match], weight: float) -> list[RankedHit]:
    """One hit for each message, with part of its neighbors' scores; the newest first."""
    best: dict[tuple[int, int], Match] = {}
    for match in matches:
        place = (match.session, match.seq)
        if place not in best or match.score > best[place].score:
            best[place] = match
    hits = []
    for (session, seq), match in sorted(best.items(), reverse=True):
        neighbors = [best[place].score for place in ((session, seq - 1), (session, seq + 1)) if place in best]
        hits.append(RankedHit(weight * (match.score + NEIGHBOR_WEIGHT * sum(neighbors)), match))
    return hits


def _grouped(outputs: Best, calls: Best) -> list[RankedHit]:
    """The outputs, those of equal calls together, of these the fullest first: a file read whole is of more use than a
    few of its lines. Those with less than half of the best one's score come last: they lack a telling word of the
    query. Each group has the score of its best."""
    groups: dict[tuple[int, str, object], list[RankedHit]] = defaultdict(list)
    for place in {**outputs, **calls}:
        own, call = outputs.get(place), calls.get(place)
        match = own or calls[place]._replace(piece=0)
        if match.handle is None:
            continue
        score = (own.score if own else 0.0) + (_of_call(call) if call else 0.0)
        # Calls that name nothing, such as polls of a running command, are not equal because of that.
        group = groups[match.session, match.tool, match.argument or place]
        group.append(RankedHit(score, match, call.call if call else None))
    hits = []
    for group in sorted(groups.values(), key=lambda members: -max(hit.match.message for hit in members)):
        best = max(hit.score for hit in group)
        group.sort(key=lambda hit: (hit.score < best / 2, -hit.match.characters, -hit.match.message))
        hits += [hit._replace(score=best) for hit in group]
    return hits


def _of_call(call: Match) -> float:
    """What the score of a call adds to that of its output."""
    says_little = call.characters < OUTPUT_CHARACTERS
    return PAIR_WEIGHT * call.score * min(1.0, CALL_WORDS / max(1, call.words)) * (0.5 if says_little else 1.0)


def rarity(count: int, entries: int) -> float:
    """The inverse document frequency of a term that `count` of the entries have, as in FTS5's bm25 function."""
    return max(LEAST_RARITY, log((max(entries, count) - count + 0.5) / (count + 0.5)))


class Shown:
    """The outputs that better hits show, with the terms that are looked for."""

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = {term.casefold() for term in wanted}
        self._known: list[tuple[frozenset[str], set[str]]] = []

    def adds(self, text: str) -> bool:
        """Whether an output shows enough that no better hit does; it is remembered then. Outputs of a command that is
        run again and again may differ in the one line that is looked for."""
        lines = _lines(text)
        least = SAME_LINES * len(lines)
        folded = text.casefold()
        terms = {term for term in self._wanted if term in folded}
        if lines and any(
            not lines.isdisjoint(others) and len(lines & others) >= least and terms <= known
            for others, known in self._known
        ):
            return False
        self._known.append((lines, terms))
        return True


def _lines(text: str) -> frozenset[str]:
    """The lines of a text that are long enough to tell it apart, without the line numbers that tools write."""
    found = set()
    for line in text[:COMPARED_CHARACTERS].splitlines():
        stripped = line.strip()
        if stripped[:1].isdigit() and (number := _LINE_NUMBER.match(stripped)):
            stripped = stripped[number.end() :].strip()
        if len(stripped) >= MIN_LINE:
            found.add(stripped)
    return frozenset(found)


MATCHES = 400
"""How many matching rows are ranked at first, at most: several for each of the at most 50 hits. A row takes 20 µs."""

MORE_MATCHES = 20_000
"""How many are ranked if too few of the first belong to the sessions that are searched."""

CALL_CHARACTERS = 4_000
"""How much of a call's arguments stands before its output's text, for the snippet."""

READ_TOGETHER = 10
"""How many texts of hits are read by one query; each may have tens of megabytes."""


def ranked_matches(limit: int) -> int:
    """How many matching rows are ranked at first for so many hits, in every store: 10 hits are as good with 300 as with
    400 rows."""
    return min(MATCHES, MATCHES // 2 + 10 * limit)
