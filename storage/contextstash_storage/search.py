"""Full-text search: no character of a query can break it. The same for both databases, whose match.py finds the
entries that have the words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal, get_args

from contextstash_storage.documents import Document, TextKind, pieces, place_of, read_documents
from contextstash_storage.errors import BadInputError
from contextstash_storage.ranking import (
    CALL_CHARACTERS,
    READ_TOGETHER,
    WHOLE_WEIGHT,
    Match,
    RankedHit,
    Shown,
    ranked,
    ranked_matches,
)
from contextstash_storage.records import SearchHit
from contextstash_storage.rows import parsed
from contextstash_storage.sessions import DELETED_OWNER
from contextstash_storage.transaction import Found, Place, Tx, listed, microseconds, only, storable, text_of, time_of

MAX_TERMS = 64
"""Of a longer query, such as a step that an agent is about to do, names and paths come first. Of 48 to 256, with 64 one
search finds most of the facts that are needed next (half of the recorded sessions)."""

MAX_QUERY_CHARACTERS = 4_000

_TERM = re.compile(r"\w+(?:[./@+-]+\w+){0,15}")
_WORD = re.compile(r"[^\W_]+")
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

Scope = Literal["all", "outputs", "messages"]
_KINDS = {"all": (), "outputs": (TextKind.CALL, TextKind.OUTPUT), "messages": (TextKind.TEXT, TextKind.CALL)}


@dataclass(frozen=True, slots=True)
class SearchFilter:
    """Where to search: only in `session_ids`, and in messages from `after` on, by default in UTC. The scope is `all`,
    `outputs` (tool outputs with their calls) or `messages` (all others). Raises BadInputError if the scope is
    unknown."""

    session_ids: Sequence[str] | None = None
    scope: str = "all"
    after: datetime | None = None

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise BadInputError(f"There is no scope '{self.scope}'. Known: {', '.join(get_args(Scope))}.")

    @property
    def kinds(self) -> tuple[TextKind, ...]:
        """The kinds of documents that the scope has; empty for all."""
        return _KINDS[self.scope]

    def admits(self, created: int) -> bool:
        """Whether a message of this time, as it is stored, is searched."""
        return self.after is None or created >= microseconds(self.after)


EVERYWHERE = SearchFilter()


def terms(query: str) -> list[str]:
    """What to look for: the names and paths of the query, the words that these are made of, its other words; stop words
    only if there is nothing else. The words of one term stand together."""
    found = list(dict.fromkeys(_TERM.findall(storable(query[:MAX_QUERY_CHARACTERS]))))
    found = [term for term in found if _WORD.search(term)]
    telling = [term for term in found if term.lower() not in STOP_WORDS] or found
    names = [term for term in telling if NAME_MARK.search(term)]
    words = [word for name in names for word in _WORD.findall(name)]
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
    if len(plain) < 2:
        return 1.0
    share = len(plain) / (len(plain) + len(names))
    brevity = min(1.0, max(0.0, 2 - len(wanted) / QUESTION_TERMS))
    return 1 + (TEXT_WEIGHT - 1) * share * brevity


Weigh = Callable[[str, int], float]
"""`weigh(session_id, seq)`: by what the score of a search's hit is multiplied, at most 1. Pure."""


def search(
    tx: Tx, owner: str, query: str, where: SearchFilter = EVERYWHERE, *, limit: int = 10, weigh: Weigh | None = None
) -> list[SearchHit]:
    """The best hits for any of the query's terms, best first, in the order of ranking.py; with `weigh`, in the order of
    the weighed scores. A call and its output are one hit, of the output; one that repeats the lines of a better hit is
    left out."""
    wanted = terms(query)
    place = _place_of(tx, owner, where)
    if not wanted or place is None or limit <= 0:
        return []
    ranks = ranked_matches(limit)
    matches: list[Match] = []
    for found in tx.index.attempts(tx, place, wanted, ranks):
        matches = _matches(tx, found, ranks, where, place)
        if len(matches) >= ranks or found.is_complete:
            break
    hits = ranked(matches, 1.0 if where.scope == "messages" else text_weight(wanted))
    if where.scope != "all":
        hits = [hit for hit in hits if hit.is_output == (where.scope == "outputs")]
    if weigh is not None:
        weighed = [hit._replace(score=weigh(hit.match.session_id, hit.match.seq) * hit.score) for hit in hits]
        hits = sorted(weighed, key=lambda hit: -hit.score)
    return list(islice(_shown(tx, hits, Shown(wanted)), limit))


_OTHERS = """
SELECT EXISTS (SELECT 1 FROM sessions WHERE owner < ? AND owner <> ?)
    OR EXISTS (SELECT 1 FROM sessions WHERE owner > ? AND owner <> ?)
"""


def _place_of(tx: Tx, owner: str, where: SearchFilter) -> Place | None:
    """Where a query searches; None if there are no such sessions."""
    shared = bool(only(tx.rows(_OTHERS, (owner, DELETED_OWNER) * 2)))
    rows: list[tuple[int, str]] = []
    if where.session_ids is not None:
        text = f"SELECT session, counters FROM sessions WHERE owner = ? AND session_id IN {tx.texts}"
        rows = tx.rows(text, (owner, listed(where.session_ids)))
        if not rows:
            return None
    elif shared:
        rows = tx.rows("SELECT session, counters FROM sessions WHERE owner = ?", (owner,))
    messages = sum(parsed(counters).get("messages", 0) for _, counters in rows)
    return Place(
        owner,
        None if where.session_ids is None else tuple(session for session, _ in rows),
        where.kinds,
        messages,
        shared,
    )


def _matches(tx: Tx, found: Found, ranks: int, where: SearchFilter, place: Place) -> list[Match]:
    """The best rows that are searched, at most so many, in order; those with all terms before others."""
    scores = {**found.scores, **{entry: WHOLE_WEIGHT * found.scores[entry] for entry in found.having_all}}
    entries = sorted(scores, key=lambda entry: (-scores[entry], -entry))
    matches: list[Match] = []
    for first in range(0, len(entries), ranks):
        if len(matches) >= ranks:
            break
        matches += _read(tx, entries[first : first + ranks], scores, where, place)
    return matches[:ranks]


_ENTRIES = (
    "SELECT entry, owner, message, messages.session, session_id, messages.seq, entries.block, piece, kind, call,"
    " call_words, messages.created_at, handle, tool, argument, characters"
    " FROM entries JOIN messages USING (message) JOIN sessions ON sessions.session = messages.session LEFT JOIN outputs"
    " ON outputs.session = messages.session AND outputs.seq = messages.seq AND outputs.block = entries.block"
    " WHERE entry IN "
)


def _read(
    tx: Tx, entries: Sequence[int], scores: Mapping[int, float], where: SearchFilter, place: Place
) -> list[Match]:
    """Those of these entries that are searched, in the same order."""
    found = {}
    for entry, owner, *values in tx.rows(_ENTRIES + tx.numbers, (listed(sorted(entries)),)):
        match = Match(scores[entry], *values)
        if place.holds(match.session, owner, match.kind) and where.admits(match.created):
            found[entry] = match._replace(
                kind=TextKind(match.kind), tool=text_of(match.tool or ""), argument=text_of(match.argument or "")
            )
    return [found[entry] for entry in entries if entry in found]


def _shown(tx: Tx, hits: Sequence[RankedHit], shown: Shown) -> Iterator[SearchHit]:
    """The hits with their texts, without outputs that add nothing to better ones. They are read as they are wanted."""
    for first in range(0, len(hits), READ_TOGETHER):
        some = hits[first : first + READ_TOGETHER]
        read = read_documents(tx, [hit.match.message for hit in some])
        for hit in some:
            if hit.match.message not in read:  # damaged
                continue
            facts, found = read[hit.match.message]
            text = _piece(found, hit.match.block, hit.match.piece)
            if hit.is_output and not shown.adds(text):
                continue
            yield SearchHit(
                session_id=hit.match.session_id,
                seq=hit.match.seq,
                role=facts.role,
                handles=() if hit.match.handle is None else (hit.match.handle,),
                tool=hit.match.tool if hit.is_output else None,
                text="\n".join(part for part in (_heading(tx, hit), text) if part),
                score=hit.score,
                created_at=time_of(hit.match.created),
            )


def _piece(found: Sequence[Document], block: int, number: int) -> str:
    """The text of a piece of a block."""
    for document in found:
        if document.block == block:
            cut = pieces(document)
            return cut[min(number, len(cut) - 1)].text
    return ""


def _heading(tx: Tx, hit: RankedHit) -> str:
    """The call that an output is of, whole if it matches."""
    if not hit.is_output:
        return ""
    if hit.call is not None:
        message, block = place_of(hit.call)
        _, found = read_documents(tx, [message]).get(message, (None, []))
        if (document := next((each for each in found if each.block == block), None)) is not None:
            return document.text[:CALL_CHARACTERS]
    return f"{hit.match.tool} {hit.match.argument}".strip()
