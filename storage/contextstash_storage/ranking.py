"""Ranks the matches of a query: their weights; a call and its output are one hit, and pieces of one text are too. Pure,
and the same for every store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from math import log

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

RANKED_HITS = 4
"""How many times as many hits as are wanted are found before they are weighed; 10 finds no more."""

COMPARED_CHARACTERS = 20_000
"""How much of an output is compared with those of better hits; that takes about 0.2 ms."""

MIN_LINE = 13
"""Shorter lines (brackets, blank ones) are in many outputs that are not the same."""

_LINE_NUMBER = re.compile(r"\d+[→\t: |]+")

LEAST_RARITY = 1e-6
"""The rarity of a word that is in half of the entries or more, as in FTS5's bm25 function."""


@dataclass(frozen=True, slots=True)
class Match:
    """A row of the index that matches, with its score: a piece of a message's block. `pair` is what a call and its
    output have in common, `words` how many words a call has, `call` the pair of the call that matches too."""

    message: int
    session: int
    seq: int
    block: int
    piece: int
    kind: TextKind
    pair: int | None
    score: float
    words: int = 0
    call: int | None = None


@dataclass(frozen=True, slots=True)
class PairedOutput:
    """A stored output of a call."""

    pair: int
    message: int
    session: int
    seq: int
    block: int
    tool: str
    argument: str
    characters: int


def ranked(matches: Sequence[Match], outputs: Sequence[PairedOutput], said_weight: float = 1.0) -> list[Match]:
    """The hits, best first; of equals the newest. `outputs` are those of all pairs among the matches; what was said
    counts `said_weight` times."""
    said = _smoothed(_best([match for match in matches if match.kind is TextKind.TEXT]), said_weight)
    calls: dict[int | None, Match] = {}
    for match in matches:
        if match.kind is TextKind.CALL and (match.pair not in calls or match.score > calls[match.pair].score):
            calls[match.pair] = match
    found = _grouped(_best([match for match in matches if match.kind is TextKind.OUTPUT]), calls, outputs)
    with_output = {output.pair for output in outputs}
    alone = [
        replace(match, score=PAIR_WEIGHT * match.score, call=pair)
        for pair, match in calls.items()
        if pair not in with_output
    ]
    return sorted([*said, *found, *alone], key=lambda hit: -hit.score)


def _best(matches: Iterable[Match]) -> dict[tuple[int, int], Match]:
    """The best match of each block of each message."""
    best: dict[tuple[int, int], Match] = {}
    for match in matches:
        place = (match.message, match.block)
        if place not in best or match.score > best[place].score:
            best[place] = match
    return best


def _smoothed(matches: Mapping[tuple[int, int], Match], weight: float) -> list[Match]:
    """One hit for each message, with part of its neighbors' scores; the newest first."""
    best: dict[tuple[int, int], Match] = {}
    for match in matches.values():
        place = (match.session, match.seq)
        if place not in best or match.score > best[place].score:
            best[place] = match
    hits = []
    for (session, seq), match in sorted(best.items(), reverse=True):
        neighbors = [best[place].score for place in ((session, seq - 1), (session, seq + 1)) if place in best]
        hits.append(replace(match, score=weight * (match.score + NEIGHBOR_WEIGHT * sum(neighbors))))
    return hits


def _grouped(
    matches: Mapping[tuple[int, int], Match], calls: Mapping[int | None, Match], outputs: Sequence[PairedOutput]
) -> list[Match]:
    """The outputs, those of equal calls together, of these the fullest first: a file read whole is of more use than a
    few of its lines. Those with less than half of the best one's score come last: they lack a telling word of the
    query. Each group has the score of its best."""
    groups: dict[tuple[int, str, str | int], list[tuple[Match, int]]] = defaultdict(list)
    for output in outputs:
        match = matches.get((output.message, output.block))
        call = calls.get(output.pair)
        if match is None and call is None:
            continue
        score = (match.score if match else 0.0) + (_of_call(call, output.characters) if call else 0.0)
        piece = match.piece if match else 0
        place = (output.message, output.session, output.seq, output.block)
        hit = Match(*place, piece, TextKind.OUTPUT, output.pair, score, call=None if call is None else output.pair)
        # Calls that name nothing, such as polls of a running command, are not equal because of that.
        called = output.argument or output.pair
        groups[output.session, output.tool, called].append((hit, output.characters))
    hits = []
    for group in sorted(groups.values(), key=lambda members: -max(hit.message for hit, _ in members)):
        best = max(hit.score for hit, _ in group)
        group.sort(key=lambda member: (member[0].score < best / 2, -member[1], -member[0].message))
        hits += [hit if hit.score == best else replace(hit, score=best) for hit, _ in group]
    return hits


def _of_call(call: Match, characters: int) -> float:
    """What the score of a call adds to that of its output, which has so many characters."""
    says_little = characters < OUTPUT_CHARACTERS
    return PAIR_WEIGHT * call.score * min(1.0, CALL_WORDS / max(1, call.words)) * (0.5 if says_little else 1.0)


def rarity(count: int, entries: int) -> float:
    """The inverse document frequency of a term that `count` of the entries have, as in FTS5's bm25 function."""
    return max(LEAST_RARITY, log((max(entries, count) - count + 0.5) / (count + 0.5)))


def best_hits(
    found: Sequence[Match],
    texts: Iterable[str],
    limit: int,
    weigh: Callable[[Match], float] | None,
    wanted: Sequence[str],
) -> list[tuple[Match, str]]:
    """The best of the hits by their weighed scores, with their texts, without outputs whose lines are in hits with a
    better score, and which have no more of the terms that are looked for. The texts are read one by one, only as long
    as a hit, or one behind it, can be among the best."""
    scores = [hit.score if weigh is None else weigh(hit) * hit.score for hit in found]
    best_behind = list(accumulate(reversed(scores), max, initial=0.0))[-2::-1]
    considered = limit if weigh is None else RANKED_HITS * limit
    terms = {term.casefold() for term in wanted}
    shown: list[tuple[frozenset[str], set[str]]] = []
    hits: list[tuple[Match, str]] = []
    for hit, score, behind, text in zip(found, scores, best_behind, texts, strict=False):
        if hit.kind is TextKind.OUTPUT and not _adds(text, terms, shown):
            continue
        hits.append((replace(hit, score=score), text))
        if len(hits) == considered or sum(each.score >= behind for each, _ in hits) >= limit:
            break
    return sorted(hits, key=lambda each: -each[0].score)[:limit]


def _adds(text: str, wanted: Set[str], shown: list[tuple[frozenset[str], set[str]]]) -> bool:
    """Whether an output shows enough that no better hit does: of those the lines and the wanted terms are `shown`, and
    its own are added. Outputs of a command that is run again and again may differ in the one line that is looked
    for."""
    lines = _lines(text)
    least = SAME_LINES * len(lines)
    folded = text.casefold()
    terms = {term for term in wanted if term in folded}
    if lines and any(
        not lines.isdisjoint(others) and len(lines & others) >= least and terms <= known for others, known in shown
    ):
        return False
    shown.append((lines, terms))
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

FEWER_MATCHES = 200
"""How many are ranked for few hits: these and MATCHES_A_HIT for each. 10 hits are as good with 300 as with 400 rows."""

MATCHES_A_HIT = 10

MORE_MATCHES = 20_000
"""How many are ranked if too few of the first belong to the sessions that are searched."""

CALL_CHARACTERS = 4_000
"""How much of a call's arguments stands before its output's text, for the snippet."""

READ_TOGETHER = 10
"""How many texts of hits are read by one query; each may have tens of megabytes."""


def ranked_matches(limit: int) -> int:
    """How many matching rows are ranked at first for so many hits, in every store."""
    return min(MATCHES, FEWER_MATCHES + MATCHES_A_HIT * limit)
