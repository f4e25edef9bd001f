"""Full-text search in SQLite: no character of a query can break it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from contextstash_storage.codec.record_json import fields_of, time_of
from contextstash_storage.records import SearchHit
from contextstash_storage.search.call_pairs import call_of_pair
from contextstash_storage.search.documents import Kind, kind_mark, tool_mark
from contextstash_storage.search.query_terms import SearchFilter, terms
from contextstash_storage.search.ranking import (
    CALL_CHARACTERS,
    CALL_WEIGHT,
    MORE_MATCHES,
    READ_TOGETHER,
    WHOLE_WEIGHT,
    BestHits,
    Match,
    PairedOutput,
    Ranked,
    ranked,
    ranked_matches,
    rarity,
    text_weight,
)
from contextstash_storage.sqlite.output_rows import ARGUMENT, CHARACTERS, TOOL
from contextstash_storage.sqlite.rows import DELETED_OWNER
from contextstash_storage.sqlite.search_index import read_searchable, read_searchables, session_mark
from contextstash_storage.store import Weigh

ENTRIES_A_MESSAGE = 2
"""Of an entry for each text, call and output, about so many in a message: for the rarity of words among the owner's."""

_BM25 = f"bm25(search_pieces, 1.0, {CALL_WEIGHT}, 0.0)"
"""Of the columns text, call and place."""

_OTHERS = """
SELECT EXISTS (SELECT 1 FROM sessions WHERE owner < ?1 AND owner != ?2)
    OR EXISTS (SELECT 1 FROM sessions WHERE owner > ?1 AND owner != ?2)
"""
_BEST = f"""
SELECT rowid, -{_BM25} AS score FROM search_pieces WHERE search_pieces MATCH ? ORDER BY score DESC, rowid DESC LIMIT ?
"""
_BEST_AMONG = f"""
SELECT entry, -{_BM25} AS score FROM search_pieces
CROSS JOIN search_entries ON entry = search_pieces.rowid CROSS JOIN messages USING (message)
WHERE search_pieces MATCH ? AND messages.session IN (SELECT value FROM json_each(?))
ORDER BY score DESC, entry DESC LIMIT ?
"""
_OWN = f"""
SELECT entry, -{_BM25} AS score FROM search_pieces
CROSS JOIN search_entries ON entry = search_pieces.rowid CROSS JOIN messages USING (message)
CROSS JOIN sessions USING (session)
WHERE search_pieces MATCH ? AND sessions.owner = ?
"""


def is_shared(db: sqlite3.Connection, owner: str) -> bool:
    """Whether another owner has sessions in the database. Two looks into the index of owners, however many sessions
    there are."""
    return bool(db.execute(_OTHERS, (owner, DELETED_OWNER)).fetchone()[0])


def best_entries(
    db: sqlite3.Connection, wanted: Sequence[str], operator: str, marks: Sequence[str], most: int
) -> dict[int, float]:
    """The best entries with any (`OR`) or all (`AND`) of the terms and with all marks, and their scores."""
    return dict(db.execute(_BEST, (_expression(wanted, operator, marks), most)))


def best_entries_among(
    db: sqlite3.Connection,
    wanted: Sequence[str],
    operator: str,
    marks: Sequence[str],
    most: int,
    sessions: Sequence[int],
) -> dict[int, float]:
    """The same of these sessions, which are most of the database."""
    return dict(db.execute(_BEST_AMONG, (_expression(wanted, operator, marks), json.dumps(sessions), most)))


def own_entries(
    db: sqlite3.Connection, owner: str, wanted: Sequence[str], marks: Sequence[str], messages: int
) -> tuple[dict[int, float], set[int]]:
    """All entries of the owner with any of the terms and with all marks, and their scores; and those with all
    of several terms. `messages` is how many messages are searched."""
    [indexed] = db.execute("SELECT count(*) FROM search_entries").fetchone()
    scores: dict[int, float] = {}
    having_all: set[int] | None = None
    for term in wanted:
        word = [term]
        [count] = db.execute(
            "SELECT count(*) FROM search_pieces WHERE search_pieces MATCH ?", (_expression(word, "OR", ()),)
        ).fetchone()
        found = dict(db.execute(_OWN, (_expression(word, "OR", marks), owner)))
        factor = rarity(len(found), ENTRIES_A_MESSAGE * messages) / rarity(count, indexed)
        for entry, score in found.items():
            scores[entry] = scores.get(entry, 0.0) + factor * score
        having_all = set(found) if having_all is None else having_all & found.keys()
    return scores, having_all if having_all and len(wanted) > 1 else set()


def _expression(wanted: Sequence[str], operator: str, marks: Sequence[str]) -> str:
    """The query for FTS5, each term quoted so that no character in it is an operator."""
    return " AND ".join([f"{{call text}} : ({any_of(wanted, operator)})", *marks])


def marked(words: Sequence[str]) -> str:
    """An entry has one of these words as a mark."""
    return f"place : ({any_of(words)})"


def any_of(words: Sequence[str], operator: str = "OR") -> str:
    return f" {operator} ".join(f'"{word}"' for word in words)


LARGE_SHARE = 0.5
"""From this share of the database's messages on, the matches of the sessions that are searched are taken out of the
best of all sessions: for each word of a query that names where to search, FTS5 counts the rows, and that takes longer
than the ranking itself."""

SIFTED = 1.2
"""How many times as many of the best of all sessions are looked through as are expected to hold MATCHES of those."""

SIFTED_KINDS = 2.5
"""The same if only outputs, or only messages, are searched: about half of the rows are of that kind."""

_SESSIONS = """
SELECT session, counters ->> '$.messages' FROM sessions
WHERE owner = ? AND (? IS NULL OR session_id IN (SELECT value FROM json_each(?)))
"""
_ENTRIES = """
SELECT entry, message, messages.session, seq, block, piece, kind, pair, {created}, sessions.owner
FROM json_each(?) JOIN search_entries ON entry = value JOIN messages USING (message) JOIN sessions USING (session)
"""
_WORDS = "SELECT id, sz FROM search_pieces_docsize WHERE id IN (SELECT value FROM json_each(?))"
_OUTPUTS_OF_CALLS = f"""
SELECT pair, message, messages.session, messages.seq, outputs.block, {TOOL}, {ARGUMENT}, {CHARACTERS}, {{created}}
FROM search_entries JOIN messages USING (message)
JOIN outputs ON outputs.session = messages.session AND outputs.seq = messages.seq
    AND outputs.block = search_entries.block
WHERE pair IN (SELECT value FROM json_each(?)) AND kind = ? AND piece = 0
"""
_OUTPUTS_AT = f"""
SELECT session, seq, outputs.block, {TOOL}, {ARGUMENT}, {CHARACTERS} FROM json_each(?)
JOIN outputs ON session = value ->> 0 AND seq = value ->> 1 AND block = value ->> 2
"""


def search(
    db: sqlite3.Connection, owner: str, query: str, where: SearchFilter, limit: int, weigh: Weigh | None = None
) -> list[SearchHit]:
    """The best hits for any of the query's terms, see SessionStore.search."""
    wanted = terms(query)
    place = _place_of(db, owner, where)
    if not wanted or place is None or limit <= 0:
        return []
    ranks = ranked_matches(limit)
    hits: list[tuple[Ranked, str]] = []
    for found in _attempts(db, place, wanted, ranks):
        matches = _matches(db, found, where, place)
        is_enough = len(matches) >= ranks
        if found.is_sifted and not (is_enough or found.is_complete):
            continue
        best = _best_hits(db, _ranked(db, matches, where, wanted), limit, weigh, wanted)
        hits = best.best()
        if is_enough or found.is_complete or best.are_enough:
            break
    return [_hit(db, hit, text) for hit, text in hits]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a query searches: in `sessions`, or in all of the owner if it is None, and of these rows only those with
    all of `marks` and one of `kinds`. `messages` is how many messages the sessions have, `share` what part of the
    database that is; both are 0 if all sessions of its only owner are searched."""

    owner: str
    sessions: tuple[int, ...] | None
    marks: tuple[str, ...]
    kinds: tuple[Kind, ...]
    messages: int
    is_database_shared: bool
    share: float

    def holds(self, session: int, owner: str, kind: int) -> bool:
        """Whether a row that has the marks is searched."""
        if owner != self.owner or (self.kinds and kind not in self.kinds):
            return False
        return self.sessions is None or session in self.sessions


@dataclass(frozen=True, slots=True)
class _Found:
    """Entries by score, and those that have all terms. Of them the `most` best count which the place holds; there are
    no others if they are `is_complete`. Sifted ones count only if they are enough."""

    scores: Mapping[int, float]
    having_all: Collection[int]
    most: int
    is_complete: bool
    is_sifted: bool = False


def _attempts(db: sqlite3.Connection, place: _Place, wanted: Sequence[str], ranks: int) -> Iterator[_Found]:
    """What matches, found in the quickest way first, until there is enough."""
    kinds = (marked([kind_mark(kind) for kind in place.kinds]),) if place.kinds else ()
    if place.is_database_shared:
        marks = (*_session_marks(place), *kinds, *place.marks)
        scores, having_all = own_entries(db, place.owner, wanted, marks, place.messages)
        yield _Found(scores, having_all, ranks, is_complete=True)
        return
    if place.sessions is None or place.share < LARGE_SHARE:
        marks = (*_session_marks(place), *kinds, *place.marks)
        for most in (ranks, MORE_MATCHES):
            yield _best(wanted, most, partial(best_entries, db, marks=marks))
        return
    sifted = round((SIFTED_KINDS if kinds else SIFTED) * ranks / place.share)
    yield replace(_best(wanted, sifted, partial(best_entries, db, marks=place.marks)), most=ranks, is_sifted=True)
    among = partial(best_entries_among, db, marks=(*kinds, *place.marks), sessions=place.sessions)
    yield _best(wanted, ranks, among)


def _best(wanted: Sequence[str], most: int, entries: Callable[..., dict[int, float]]) -> _Found:
    """The best with any of the terms. Those with all terms are among them whatever their rank, since one term of a call
    outweighs many of a text."""
    scores = entries(wanted=wanted, operator="OR", most=most)
    whole = entries(wanted=wanted, operator="AND", most=most) if len(wanted) > 1 else {}
    return _Found({**whole, **scores}, whole.keys(), most, is_complete=len(scores) < most)


def _session_marks(place: _Place) -> tuple[str, ...]:
    return (marked([session_mark(session) for session in place.sessions]),) if place.sessions else ()


def _place_of(db: sqlite3.Connection, owner: str, where: SearchFilter) -> _Place | None:
    """Where a query searches; None if there are no such sessions."""
    named = None if where.session_ids is None else json.dumps(list(where.session_ids))
    is_database_shared = is_shared(db, owner)
    rows = db.execute(_SESSIONS, (owner, named, named)).fetchall() if named or is_database_shared else []
    if named and not rows:
        return None
    messages = sum(messages or 0 for _, messages in rows)
    [newest] = db.execute("SELECT max(message) FROM messages").fetchone()
    return _Place(
        owner,
        None if named is None else tuple(session for session, _ in rows),
        () if where.tool is None else (marked([tool_mark(where.tool)]),),
        where.kinds,
        messages,
        is_database_shared,
        messages / max(1, newest or 0),
    )


def _matches(db: sqlite3.Connection, found: _Found, where: SearchFilter, place: _Place) -> list[Match]:
    """The rows that are searched, best first; those with all terms before others."""
    weights = {entry: WHOLE_WEIGHT * found.scores[entry] for entry in found.having_all}
    scores = {**found.scores, **weights}
    entries = sorted(scores, key=lambda entry: (-scores[entry], -entry))
    matches: list[Match] = []
    for first in range(0, len(entries), found.most):
        if len(matches) >= found.most:
            break
        matches += _read(db, entries[first : first + found.most], scores, where, place)
    return matches[: found.most]


def _read(
    db: sqlite3.Connection, entries: Sequence[int], scores: Mapping[int, float], where: SearchFilter, place: _Place
) -> list[Match]:
    """Those of these entries that are searched, in the same order."""
    found_rows = db.execute(_with_time(_ENTRIES, where), (json.dumps(sorted(entries)),))
    rows = [row for row in found_rows if place.holds(row[2], row[9], row[6])]
    if not where.any_time:
        rows = [row for row in rows if where.admits(row[8])]
    calls = sorted(row[0] for row in rows if row[6] == Kind.CALL)
    words = {entry: _words_of(sizes) for entry, sizes in db.execute(_WORDS, (json.dumps(calls),))} if calls else {}
    found = {
        entry: Match(message, session, seq, block, piece, Kind(kind), pair, scores[entry], words.get(entry, 0))
        for entry, message, session, seq, block, piece, kind, pair, _, _ in rows
    }
    return [found[entry] for entry in entries if entry in found]


def _words_of(sizes: bytes) -> int:
    """The words of a row: FTS5 stores those of each column as a number of seven bits a byte, all but the last byte of
    a number with the eighth bit set."""
    if sizes.isascii():
        return sum(sizes)
    words = column = 0
    for byte in sizes:
        column = column << 7 | byte & 0x7F
        if byte < 0x80:
            words, column = words + column, 0
    return words


def _with_time(query: str, where: SearchFilter) -> str:
    """The query with the time of each message if that is needed."""
    return query.format(created="NULL" if where.any_time else "messages.created_at")


def _ranked(
    db: sqlite3.Connection, matches: Sequence[Match], where: SearchFilter, wanted: Sequence[str]
) -> list[Ranked]:
    if where.scope == "messages":
        return ranked(matches, ())
    found = ranked(matches, _outputs(db, matches, where), text_weight(wanted))
    return [hit for hit in found if hit.kind is not Kind.CALL] if where.scope == "outputs" else found


def _outputs(db: sqlite3.Connection, matches: Sequence[Match], where: SearchFilter) -> list[PairedOutput]:
    """The outputs that match, and all outputs of calls that match."""
    calls = {match.pair for match in matches if match.kind is Kind.CALL}
    rows = db.execute(_with_time(_OUTPUTS_OF_CALLS, where), (json.dumps(sorted(calls)), Kind.OUTPUT.value))
    of_calls = [
        PairedOutput(pair, message, session, seq, block, tool, argument or "", characters)
        for pair, message, session, seq, block, tool, argument, characters, created in rows
        if where.admits(created)
    ]
    others = {
        (match.session, match.seq, match.block): match
        for match in matches
        if match.kind is Kind.OUTPUT and match.pair not in calls
    }
    alone = []
    for session, seq, block, tool, argument, characters in db.execute(_OUTPUTS_AT, (json.dumps(sorted(others)),)):
        match = others[session, seq, block]
        pair = match.pair or 0
        alone.append(PairedOutput(pair, match.message, session, seq, block, tool, argument or "", characters))
    return [*of_calls, *alone]


def _best_hits(
    db: sqlite3.Connection, found: Sequence[Ranked], limit: int, weigh: Weigh | None, wanted: Sequence[str]
) -> BestHits[str]:
    """The best hits with their texts."""
    best: BestHits[str] = BestHits(found, limit, None if weigh is None else _by_row(db, found, weigh), wanted)
    for text in _texts(db, found):
        if best.add(text, text):
            break
    return best


def _by_row(db: sqlite3.Connection, found: Sequence[Ranked], weigh: Weigh) -> Callable[[Ranked], float]:
    """The caller's weight of each of these hits, which have the rows of their sessions."""
    sessions = json.dumps(sorted({hit.session for hit in found}))
    names = dict(
        db.execute(
            "SELECT session, session_id FROM sessions WHERE session IN (SELECT value FROM json_each(?))", (sessions,)
        )
    )
    return lambda hit: weigh(names[hit.session], hit.seq)


def _texts(db: sqlite3.Connection, found: Sequence[Ranked]) -> Iterator[str]:
    for first in range(0, len(found), READ_TOGETHER):
        some = found[first : first + READ_TOGETHER]
        searchables = read_searchables(db, [hit.message for hit in some])
        for hit in some:
            searchable = searchables.get(hit.message)
            yield "" if searchable is None else searchable.shown_piece(hit.block, hit.piece)


def _hit(db: sqlite3.Connection, hit: Ranked, text: str) -> SearchHit:
    session_id, derived, created = db.execute(
        "SELECT session_id, derived, messages.created_at FROM messages JOIN sessions USING (session) WHERE message = ?",
        (hit.message,),
    ).fetchone()
    output = db.execute(
        f"SELECT handle, {TOOL}, {ARGUMENT} FROM outputs WHERE session = ? AND seq = ? AND block = ?",
        (hit.session, hit.seq, hit.block),
    ).fetchone()
    handle, tool, argument = output or (None, None, None)
    return SearchHit(
        session_id=session_id,
        seq=hit.seq,
        role=fields_of(derived)["role"],
        handles=() if handle is None else (handle,),
        tool=tool,
        text="\n".join(part for part in (_heading(db, hit, tool, argument), text) if part),
        score=hit.score,
        created_at=time_of(created),
    )


def _heading(db: sqlite3.Connection, hit: Ranked, tool: str | None, argument: str | None) -> str:
    """The call that an output is of, whole if it matches."""
    if hit.kind is not Kind.OUTPUT:
        return ""
    document = None
    if hit.call is not None:
        message, block = call_of_pair(hit.call)
        called = read_searchable(db, message)
        document = None if called is None else called.document(block)
    return f"{tool} {argument or ''}".strip() if document is None else document.text[:CALL_CHARACTERS]
