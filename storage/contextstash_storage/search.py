"""Full-text search: no character of a query can break it. The same for both databases, which find the entries that
have the words."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import NamedTuple

from contextstash_storage.documents import BLOCKS, LETTERS, Document, MessagePlace, TextKind, pieces, read_documents
from contextstash_storage.errors import DamagedError
from contextstash_storage.messages import read_outputs
from contextstash_storage.records import Message, SearchHit
from contextstash_storage.sessions import HIDDEN_OWNER
from contextstash_storage.transaction import Found, Place, Tx, listed, storable

MAX_TERMS = 64
"""Of a longer query, such as a step that an agent is about to do, names and paths come first. Of 48 to 256, with 64 one
search finds most of the facts that are needed next (half of the recorded sessions)."""

MAX_QUERY_CHARACTERS = 4_000

_TERM = re.compile(r"\w+(?:[./@+-]+\w+){0,15}")
NAME_MARK = re.compile(r"[\d_./@+-]|(?<=[a-z])[A-Z]")
"""What an identifier or a path has, and a word of a sentence has not."""

STOP_WORDS = frozenset(
    {
        "a", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "did", "do", "does", "for",
        "from", "had", "has", "have", "he", "her", "his", "how", "i", "if", "in", "into", "is", "it", "its", "me", "my",
        "not", "of", "on", "or", "our", "she", "so", "some", "than", "that", "the", "their", "them", "then", "there",
        "these", "they", "this", "those", "to", "too", "up", "us", "was", "we", "were", "what", "when", "where",
        "which", "who", "whom", "why", "will", "with", "would", "you", "your",
    }
)  # fmt: skip
"""English words that say nothing about what is looked for: pronouns, articles, forms of be, do and have, question
words."""

_KINDS = {"all": (), "outputs": (TextKind.CALL, TextKind.OUTPUT), "messages": (TextKind.TEXT, TextKind.CALL)}
"""The kinds of documents of a scope, none for all: `outputs` are of tools with their calls, `messages` all others."""


def terms(query: str) -> list[str]:
    """What to look for: the names and paths of the query, the words that these are made of, its other words; stop words
    only if there is nothing else. The words of one term stand together."""
    found = list(dict.fromkeys(_TERM.findall(storable(query[:MAX_QUERY_CHARACTERS]))))
    found = [term for term in found if LETTERS.search(term)]
    telling = [term for term in found if term.lower() not in STOP_WORDS] or found
    names = [term for term in telling if NAME_MARK.search(term)]
    words = [word for name in names for word in LETTERS.findall(name)]
    return list(dict.fromkeys([*names, *words, *telling]))[:MAX_TERMS]


TEXT_WEIGHT = 4.0
"""How much the score of what was said counts for a question in plain words, if a call with its output counts 1. With 1,
a word in a call's arguments hides what was said: of 42 such questions over thirteen recorded sessions 19 have what they
look for among the first five hits, with 3 27 of them, with 4 and 6 31."""

QUESTION_TERMS = 12
"""A query of more terms is rather a call or a passage as it was written than a question, one of twice as many surely,
and its output is looked for: with 4 for those too, one search with an agent's next words and call finds 2 to 3 of 100
needed facts less."""


def text_weight(wanted: Sequence[str]) -> float:
    """How much what was said counts for a query with these terms: more for a question, by its share of plain words,
    than for names, paths and calls. One word is not a question."""
    names = [term for term in wanted if NAME_MARK.search(term)]
    plain = [term for term in wanted if not any(term in name for name in names)]
    brevity = min(1.0, max(0.0, 2 - len(wanted) / QUESTION_TERMS))
    return 1 + (TEXT_WEIGHT - 1) * brevity * len(plain) / (len(plain) + len(names)) if len(plain) > 1 else 1.0


PAIR_WEIGHT = 3.0
"""How much the score of a call counts for its output, where the output's own counts 1; 2, 3 and 5 were tried."""

CALL_WORDS = 30
"""The score of a call with more words (a patch, a script, the text of a file) counts less for its output, in inverse
proportion: it names much that its output does not hold. Of recorded calls half have up to 19 words, three quarters up
to 44. Of 15, 20, 30, 40 and none, on half of the recorded sessions: an agent that fetches an output again and searches
with its own words finds it first in 52 instead of 33 % of the cases (docs/measured.md). Four marks count as words."""

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


class Match(NamedTuple):
    """A row of the index that matches: a piece of a message's block, or a call that is filed under its output's place
    and was made at the place numbered `call`, with so many words; and what is stored of the output that is there, if
    one is."""

    score: float
    entry: int
    session: int
    session_id: str
    seq: int
    block: int
    piece: int
    kind: int
    call: int | None
    words: int
    handle: str | None
    tool: str
    argument: str
    characters: int

    @property
    def place(self) -> MessagePlace:
        """Where its message is."""
        return self.session, self.session_id, self.seq


class RankedHit(NamedTuple):
    """A hit: the match whose piece is shown, and the number of the call's place if that matches too."""

    score: float
    match: Match
    call: int | None = None

    @property
    def is_output(self) -> bool:
        return self.match.handle is not None


Best = dict[tuple[int, int, int], Match]
"""The best match of each block of each message."""


def ranked(matches: Iterable[Match], said_weight: float = 1.0) -> list[RankedHit]:
    """The hits of matches (best first), best first; of equals the newest. What was said counts `said_weight` times."""
    best: dict[int, Best] = {kind: {} for kind in TextKind}
    for match in matches:
        best[match.kind].setdefault((match.session, match.seq, match.block), match)
    calls = best[TextKind.CALL]
    alone = [RankedHit(PAIR_WEIGHT * each.score, each, each.call) for each in calls.values() if each.handle is None]
    said = _smoothed(best[TextKind.TEXT].values(), said_weight)
    return sorted([*said, *_grouped(best[TextKind.OUTPUT], calls), *alone], key=attrgetter("score"), reverse=True)


def _smoothed(matches: Iterable[Match], weight: float) -> list[RankedHit]:
    """One hit for each message, with part of its neighbors' scores; the newest first."""
    best: dict[tuple[int, int], Match] = {}
    for match in matches:
        best.setdefault((match.session, match.seq), match)
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
    for match in sorted({**calls, **outputs}.values(), key=attrgetter("entry"), reverse=True):
        if match.handle is None:
            continue
        place = (match.session, match.seq, match.block)
        call = calls.get(place)
        score = match.score if place in outputs else 0.0
        if call is not None:
            says_little = call.characters < OUTPUT_CHARACTERS
            score += PAIR_WEIGHT * call.score * min(1.0, CALL_WORDS / (call.words + 4)) * (0.5 if says_little else 1)
        # Calls that name nothing, such as polls of a running command, are not equal because of that.
        group = groups[match.session, match.tool, match.argument or place]
        group.append(RankedHit(score, match, call.call if call else None))
    hits = []
    for group in groups.values():  # that of the newest first, and so are the members of each
        if len(group) > 1:
            best = max(hit.score for hit in group)
            group.sort(key=lambda hit: (hit.score < best / 2, -hit.match.characters))
            group = [hit._replace(score=best) for hit in group]
        hits += group
    return hits


Seen = list[tuple[frozenset[str], set[str]]]
"""The lines of the outputs that are shown, and the terms that each has."""


def _adds(text: str, wanted: Iterable[str], seen: Seen) -> bool:
    """Whether an output shows enough that no better hit does; it is remembered then. Outputs of a command that is run
    again and again may differ in the one line that is looked for."""
    lines, folded = _lines(text), text.casefold()
    least = SAME_LINES * len(lines)
    terms = {term for term in wanted if term in folded}
    if lines and any(
        not lines.isdisjoint(others) and len(lines & others) >= least and terms <= known for others, known in seen
    ):
        return False
    seen.append((lines, terms))
    return True


def _lines(text: str) -> frozenset[str]:
    """The lines of a text that are long enough to tell it apart, without the line numbers that tools write."""
    found = set()
    for line in map(str.strip, text[:COMPARED_CHARACTERS].splitlines()):
        if "0" <= line < ":" and (number := _LINE_NUMBER.match(line)):
            line = line[number.end() :].strip()
        if len(line) >= MIN_LINE:
            found.add(line)
    return frozenset(found)


MATCHES = 400
"""How many matching rows are ranked at first, at most; for 10 hits 300, which are as good. A row takes 10 µs."""

CALL_CHARACTERS = 4_000
"""How much of a call's arguments stands before its output's text, for the snippet."""

READ_TOGETHER = 10
"""How many texts of hits are read by one query; each may have tens of megabytes."""


Weigh = Callable[[str, int], float]
"""`weigh(session_id, seq)`: by what the score of a search's hit is multiplied, at most 1. Pure."""


def search(
    tx: Tx,
    owner: str,
    query: str,
    *,
    session_ids: Sequence[str] | None = None,
    scope: str = "all",
    limit: int = 10,
    weigh: Weigh | None = None,
) -> list[SearchHit]:
    """The best hits for any of the query's terms, in all sessions or in some, best first by their weighed scores, and
    else in the order of `ranked`. A call and its output are one hit, of the output; one that repeats the lines of a
    better hit is left out."""
    wanted = terms(query)
    place = _place_of(tx, owner, session_ids, _KINDS[scope])
    if not wanted or place is None or limit <= 0:
        return []
    ranks = min(MATCHES, MATCHES // 2 + 10 * limit)
    matches: list[Match] = []
    for found in tx.attempts(place, wanted, ranks):
        matches = _matches(tx, found, ranks, place)
        if len(matches) >= ranks or found.is_complete:
            break
    hits = ranked(matches, 1.0 if scope == "messages" else text_weight(wanted))
    if scope != "all":
        hits = [hit for hit in hits if hit.is_output == (scope == "outputs")]
    scores = [hit.score * (weigh(hit.match.session_id, hit.match.seq) if weigh else 1.0) for hit in hits]
    weighed = sorted(zip(scores, hits, strict=True), key=itemgetter(0), reverse=True)
    return list(islice(_shown(tx, weighed, wanted), limit))


def _place_of(tx: Tx, owner: str, named: Sequence[str] | None, kinds: tuple[TextKind, ...]) -> Place | None:
    """Where a query searches; None if there are no sessions so named."""
    is_shared = bool(tx.rows("SELECT 1 FROM sessions WHERE owner NOT IN (?, ?) LIMIT 1", (owner, HIDDEN_OWNER)))
    text, values = "SELECT session, entry_count FROM sessions WHERE owner = ?", [owner]
    if named is not None:
        text += f" AND session_id IN {tx.texts}"
        values.append(listed(named))
    rows = tx.rows(text, values) if is_shared or named is not None else []
    if named is not None and not rows:
        return None
    sessions = None if named is None else tuple(session for session, _ in rows)
    return Place(owner, sessions, kinds, sum(count for _, count in rows), is_shared)


def _matches(tx: Tx, found: Found, ranks: int, place: Place) -> list[Match]:
    """The best rows that are searched, at most so many, in order; those with all terms before others."""
    scores = {**found.scores, **{entry: WHOLE_WEIGHT * found.scores[entry] for entry in found.having_all}}
    entries = sorted(scores, key=lambda entry: (-scores[entry], -entry))
    parts = (_read(tx, entries[first : first + ranks], scores, place) for first in range(0, len(entries), ranks))
    return list(islice(chain.from_iterable(parts), ranks))


_ENTRIES = (
    "SELECT owner, entry, entries.session, session_id, entries.seq, entries.block, piece, kind, call, call_words,"
    " handle, coalesce(tool, ''), coalesce(argument, ''), characters"
    " FROM entries JOIN sessions ON sessions.session = entries.session"
    " LEFT JOIN outputs ON outputs.session = entries.session AND outputs.seq = entries.seq"
    " AND outputs.block = entries.block WHERE entry IN "
)


def _read(tx: Tx, entries: Sequence[int], scores: Mapping[int, float], place: Place) -> list[Match]:
    """Those of these entries that are searched, in the same order."""
    found, kinds = {}, place.kinds or tuple(TextKind)
    for owner, entry, *values in tx.rows(_ENTRIES + tx.numbers, (listed(sorted(entries)),)):
        match = Match(scores[entry], entry, *values)
        is_there = place.sessions is None or match.session in place.sessions
        if is_there and owner == place.owner and match.kind in kinds:
            found[entry] = match
    return [found[entry] for entry in entries if entry in found]


def _shown(tx: Tx, hits: Sequence[tuple[float, RankedHit]], wanted: Sequence[str]) -> Iterator[SearchHit]:
    """The hits with their texts, without outputs that add nothing to better ones. They are read as they are wanted."""
    seen: Seen = []
    folded = {term.casefold() for term in wanted}
    for first in range(0, len(hits), READ_TOGETHER):
        some = hits[first : first + READ_TOGETHER]
        calls = [(*hit.match.place[:2], hit.call // BLOCKS) for _, hit in some if hit.call is not None]
        read = read_documents(tx, [*(hit.match.place for _, hit in some), *calls])
        for score, hit in some:
            if hit.match.place not in read:  # damaged
                continue
            message, found = read[hit.match.place]
            cut = [piece.text for each in found if each.block == hit.match.block for piece in pieces(each)] or [""]
            is_found = not hit.is_output or hit.match.kind == TextKind.OUTPUT  # and not its call alone
            text = cut[min(hit.match.piece, len(cut) - 1) if is_found else 0]
            if hit.is_output and not (_is_intact(tx, hit.match) and _adds(text, folded, seen)):
                continue
            yield SearchHit(
                session_id=hit.match.session_id,
                seq=hit.match.seq,
                role=message.role,
                handles=() if hit.match.handle is None else (hit.match.handle,),
                tool=hit.match.tool if hit.is_output else None,
                text="\n".join(part for part in (_heading(read, hit, message), text) if part),
                score=score,
                created_at=message.created_at,
            )


def _is_intact(tx: Tx, match: Match) -> bool:
    """Whether what is stored of a match's output is what was stored."""
    with suppress(DamagedError):
        outputs = read_outputs(tx, match.session, first=match.seq, last=match.seq)
        found = [(each.block, each.handle, each.tool, each.argument) for each in outputs]
        return (match.block, match.handle, match.tool, match.argument) in found  # not as bytes
    return False


def _heading(read: Mapping[MessagePlace, tuple[Message, list[Document]]], hit: RankedHit, message: Message) -> str:
    """The call that an output in this message is of, whole if it matches."""
    if not hit.is_output:
        return ""
    if hit.call is not None:
        seq, block = divmod(hit.call, BLOCKS)
        made, found = read.get((*hit.match.place[:2], seq), (message, []))
        for each in found:
            if each.block == block and made.blocks[block].call_id == message.blocks[hit.match.block].call_id:
                return each.text[:CALL_CHARACTERS]
    return f"{hit.match.tool} {hit.match.argument}".strip()
