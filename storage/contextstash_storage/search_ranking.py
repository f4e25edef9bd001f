"""What the matches of a query amount to: a call and its output are one hit, and pieces of one text are too. Pure, and
the same for every store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from contextstash_storage.search_documents import Kind
from contextstash_storage.search_query import NEIGHBOR_WEIGHT, PAIR_WEIGHT, SAME_LINES

COMPARED_CHARACTERS = 20_000
"""How much of an output is compared with those of better hits; that takes about 0.2 ms."""

MIN_LINE = 13
"""Shorter lines (brackets, blank ones) are in many outputs that are not the same."""

_LINE_NUMBER = re.compile(r"\d+[→\t: |]+")


@dataclass(frozen=True, slots=True)
class Match:
    """A row of the index that matches, with its score. `pair` is what a call and its output have in common."""

    message: int
    session: int
    seq: int
    block: int
    piece: int
    kind: Kind
    pair: int | None
    score: float


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


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hit: piece `piece` of a message's block matches best. `call` is the pair of the call that matches too."""

    message: int
    session: int
    seq: int
    block: int
    piece: int
    kind: Kind
    score: float
    call: int | None = None


def ranked(matches: Sequence[Match], outputs: Sequence[PairedOutput]) -> list[Ranked]:
    """The hits, best first; of equals the newest. `outputs` are those of all pairs among the matches."""
    said = _smoothed(_best([match for match in matches if match.kind is Kind.TEXT]))
    calls: dict[int | None, Match] = {}
    for match in matches:
        if match.kind is Kind.CALL and (match.pair not in calls or match.score > calls[match.pair].score):
            calls[match.pair] = match
    found = _grouped(_best([match for match in matches if match.kind is Kind.OUTPUT]), calls, outputs)
    with_output = {output.pair for output in outputs}
    alone = [
        _hit(match, PAIR_WEIGHT * match.score, match.pair) for pair, match in calls.items() if pair not in with_output
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


def _hit(match: Match, score: float, call: int | None = None) -> Ranked:
    return Ranked(match.message, match.session, match.seq, match.block, match.piece, match.kind, score, call)


def _smoothed(matches: Mapping[tuple[int, int], Match]) -> list[Ranked]:
    """One hit for each message, with part of its neighbors' scores; the newest first."""
    best: dict[tuple[int, int], Match] = {}
    for match in matches.values():
        place = (match.session, match.seq)
        if place not in best or match.score > best[place].score:
            best[place] = match
    hits = []
    for (session, seq), match in sorted(best.items(), reverse=True):
        neighbors = [best[place].score for place in ((session, seq - 1), (session, seq + 1)) if place in best]
        hits.append(_hit(match, match.score + NEIGHBOR_WEIGHT * sum(neighbors)))
    return hits


def _grouped(
    matches: Mapping[tuple[int, int], Match], calls: Mapping[int | None, Match], outputs: Sequence[PairedOutput]
) -> list[Ranked]:
    """The outputs, those of equal calls together, of these the fullest first: a file read whole is of more use than a
    few of its lines. Each group has the score of its best."""
    groups: dict[tuple[int, str, str | int], list[tuple[Ranked, int]]] = defaultdict(list)
    for output in outputs:
        match = matches.get((output.message, output.block))
        call = calls.get(output.pair)
        if match is None and call is None:
            continue
        score = (match.score if match else 0.0) + (PAIR_WEIGHT * call.score if call else 0.0)
        piece = match.piece if match else 0
        place = (output.message, output.session, output.seq, output.block)
        hit = Ranked(*place, piece, Kind.OUTPUT, score, None if call is None else output.pair)
        # Calls that name nothing, such as polls of a running command, are not equal because of that.
        called = output.argument or output.pair
        groups[output.session, output.tool, called].append((hit, output.characters))
    hits = []
    for group in sorted(groups.values(), key=lambda members: -max(hit.message for hit, _ in members)):
        best = max(hit.score for hit, _ in group)
        group.sort(key=lambda member: (-member[1], -member[0].message))
        hits += [hit if hit.score == best else replace(hit, score=best) for hit, _ in group]
    return hits


class ShownLines:
    """The lines of the outputs that are among the hits already."""

    def __init__(self) -> None:
        self._shown: list[frozenset[str]] = []

    def adds(self, text: str) -> bool:
        """Whether an output shows enough that no better hit does; it is then remembered."""
        lines = _lines(text)
        least = SAME_LINES * len(lines)
        if lines and any(not lines.isdisjoint(shown) and len(lines & shown) >= least for shown in self._shown):
            return False
        self._shown.append(lines)
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
