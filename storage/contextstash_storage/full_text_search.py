"""Full-text search in SQLite: no character of a query can break it."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from contextstash_storage.derived_form import fields_of
from contextstash_storage.records import SearchHit
from contextstash_storage.rows import STORED_TIME, time_of
from contextstash_storage.search_documents import Document, Kind, kind_mark, pieces, tool_mark
from contextstash_storage.search_index import call_of_pair, read_searchable, session_mark
from contextstash_storage.search_query import CALL_WEIGHT, WHOLE_WEIGHT, SearchFilter, terms
from contextstash_storage.search_ranking import Match, PairedOutput, Ranked, ShownLines, ranked
from contextstash_storage.stored_outputs import ARGUMENT, CHARACTERS, TOOL

MATCHES = 400
"""How many matching rows are ranked at first: several for each of the at most 50 hits."""

MORE_MATCHES = 20_000
"""How many are ranked if too few of the first belong to the sessions that are searched."""

CALL_CHARACTERS = 4_000
"""How much of a call's arguments stands before its output's text, for the snippet."""

_KINDS = {"all": (), "outputs": (Kind.CALL, Kind.OUTPUT), "messages": (Kind.TEXT, Kind.CALL)}

_WEIGHTS = {"place": 0.0, "call": CALL_WEIGHT, "text": 1.0}

LARGE_SHARE = 0.5
"""From this share of the database's messages on, the sessions that are searched are found among all matches: for each
word of a query that names where to search, FTS5 counts the rows, and that takes longer than the ranking itself."""

_MATCHES = """
SELECT entry, message, messages.session, seq, block, piece, kind, pair, -score, {created}
FROM (
    SELECT rowid AS entry, rank AS score FROM search_pieces
    WHERE search_pieces MATCH ? AND rank MATCH ? ORDER BY rank LIMIT ?
)
JOIN search_entries USING (entry) JOIN messages USING (message) JOIN sessions USING (session)
WHERE sessions.owner = ?
"""
_MATCHES_AMONG = """
SELECT entry, message, messages.session, seq, block, piece, kind, pair, -rank, {created}
FROM search_pieces CROSS JOIN search_entries ON entry = search_pieces.rowid CROSS JOIN messages USING (message)
WHERE search_pieces MATCH ? AND rank MATCH ? AND messages.session IN (SELECT value FROM json_each(?))
ORDER BY rank LIMIT ?
"""
_OUTPUTS = f"""
SELECT pair, message, messages.session, messages.seq, search_entries.block,
    {TOOL}, {ARGUMENT}, {CHARACTERS}, {STORED_TIME}
FROM search_entries JOIN messages USING (message)
JOIN outputs ON outputs.session = messages.session AND outputs.seq = messages.seq
    AND outputs.block = search_entries.block
WHERE pair IN (SELECT value FROM json_each(?)) AND kind = ? AND piece = 0
"""


def search(db: sqlite3.Connection, owner: str, query: str, where: SearchFilter, limit: int) -> list[SearchHit]:
    """The best hits for any of the query's terms, see SessionStore.search."""
    wanted = terms(query)
    place = _place_of(db, owner, where)
    if not wanted or place is None or limit <= 0:
        return []
    match = _expression(wanted, "OR", place.marks)
    whole = _expression(wanted, "AND", place.marks) if len(wanted) > 1 else None
    hits: list[SearchHit] = []
    for most, tried in _attempts(db, place, where):
        rows = _matches(db, match, whole, where, tried, most)
        hits = list(_hits(db, _ranked(db, rows, where), limit))
        if len(hits) >= limit or len(rows) == most or _count(db, match, most) < most:
            break
    return hits


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a query searches: `marks` restrict it within FTS5; with `among`, its matches are those in these sessions,
    else those in sessions of the owner."""

    owner: str
    marks: tuple[str, ...] = ()
    among: tuple[int, ...] | None = None


def _attempts(db: sqlite3.Connection, place: _Place, where: SearchFilter) -> Iterator[tuple[int, _Place]]:
    """How many matches are ranked, and where, until enough are found. Finding the owner's among all matches takes
    longer, and comes last: only if others have so many better ones that they hide the owner's."""
    yield MATCHES, place
    yield MORE_MATCHES, place
    if where.session_ids is None:
        rows = db.execute("SELECT session FROM sessions WHERE owner = ?", (place.owner,))
        yield MORE_MATCHES, replace(place, among=tuple(session for (session,) in rows))


def _expression(wanted: Sequence[str], operator: str, places: Sequence[str]) -> str:
    """The query for FTS5, each term quoted so that no character in it is an operator."""
    return " AND ".join([f"{{call text}} : ({_any(wanted, operator)})", *places])


def _place_of(db: sqlite3.Connection, owner: str, where: SearchFilter) -> _Place | None:
    """Where a query searches; None if there are no such sessions."""
    places = []
    among = None
    if where.session_ids is not None:
        rows = db.execute(
            "SELECT session, counters ->> '$.messages' FROM sessions"
            " WHERE owner = ? AND session_id IN (SELECT value FROM json_each(?))",
            (owner, json.dumps(list(where.session_ids))),
        ).fetchall()
        if not rows:
            return None
        sessions = tuple(session for session, _ in rows)
        [newest] = db.execute("SELECT max(message) FROM messages").fetchone()
        if sum(messages or 0 for _, messages in rows) >= LARGE_SHARE * (newest or 0):
            among = sessions
        else:
            places.append(_any([session_mark(session) for session in sessions]))
    if kinds := _KINDS[where.scope]:
        places.append(_any([kind_mark(kind) for kind in kinds]))
    if where.tool is not None:
        places.append(_any([tool_mark(where.tool)]))
    return _Place(owner, tuple(f"place : ({place})" for place in places), among)


def _any(words: Sequence[str], operator: str = "OR") -> str:
    return f" {operator} ".join(f'"{word}"' for word in words)


def _matches(
    db: sqlite3.Connection, match: str, whole: str | None, where: SearchFilter, place: _Place, most: int
) -> list[Match]:
    weights = _weights(db)
    having_all = frozenset[int]()
    if whole is not None:
        found = db.execute("SELECT rowid FROM search_pieces WHERE search_pieces MATCH ? LIMIT ?", (whole, most))
        having_all = frozenset(entry for (entry,) in found)
    # The time of a message is behind its body: it is read only if it is needed.
    time = "NULL" if where.any_time else STORED_TIME
    if place.among is None:
        rows = db.execute(_MATCHES.format(created=time), (match, weights, most, place.owner))
    else:
        values = (match, weights, json.dumps(place.among), most)
        rows = db.execute(_MATCHES_AMONG.format(created=time), values)
    matches = []
    for entry, message, session, seq, block, piece, kind, pair, score, created in rows:
        if where.admits(created):
            weight = WHOLE_WEIGHT if entry in having_all else 1.0
            matches.append(Match(message, session, seq, block, piece, Kind(kind), pair, score * weight))
    return matches


def _weights(db: sqlite3.Connection) -> str:
    """The ranking function. The columns of the index are in another order in databases of former versions."""
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(search_pieces)")]
    return f"bm25({', '.join(str(_WEIGHTS[name]) for name in columns)})"


def _count(db: sqlite3.Connection, match: str, most: int) -> int:
    """How many rows match, counted up to `most`."""
    counted = "SELECT count(*) FROM (SELECT rowid FROM search_pieces WHERE search_pieces MATCH ? LIMIT ?)"
    return int(db.execute(counted, (match, most)).fetchone()[0])


def _ranked(db: sqlite3.Connection, matches: Sequence[Match], where: SearchFilter) -> list[Ranked]:
    if where.scope == "messages":
        return ranked(matches, ())
    pairs = {match.pair for match in matches if match.pair is not None}
    rows = db.execute(_OUTPUTS, (json.dumps(sorted(pairs)), Kind.OUTPUT.value))
    outputs = [
        PairedOutput(pair, message, session, seq, block, tool, argument or "", characters)
        for pair, message, session, seq, block, tool, argument, characters, created in rows
        if where.admits(created)
    ]
    found = ranked(matches, outputs)
    return [hit for hit in found if hit.kind is not Kind.CALL] if where.scope == "outputs" else found


def _hits(db: sqlite3.Connection, found: Sequence[Ranked], limit: int) -> Iterator[SearchHit]:
    """The first hits, without outputs whose lines are in better ones."""
    shown = ShownLines()
    count = 0
    for hit in found:
        text = _text(db, hit)
        if hit.kind is Kind.OUTPUT and not shown.adds(text):
            continue
        yield _hit(db, hit, text)
        count += 1
        if count == limit:
            return


def _text(db: sqlite3.Connection, hit: Ranked) -> str:
    """The text of the piece that matches best."""
    document = _document(db, hit.message, hit.block)
    if document is None:
        return ""
    texts = [piece.text for piece in pieces([document])]
    return texts[min(hit.piece, len(texts) - 1)]


def _document(db: sqlite3.Connection, message: int, block: int) -> Document | None:
    searchable = read_searchable(db, message)
    found = searchable.documents() if searchable else []
    return next((document for document in found if document.block == block), None)


def _hit(db: sqlite3.Connection, hit: Ranked, text: str) -> SearchHit:
    session_id, derived, created = db.execute(
        f"SELECT session_id, derived, {STORED_TIME} FROM messages JOIN sessions USING (session) WHERE message = ?",
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
    document = None if hit.call is None else _document(db, *call_of_pair(hit.call))
    return f"{tool} {argument or ''}".strip() if document is None else document.text[:CALL_CHARACTERS]
