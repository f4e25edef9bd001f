"""Full-text search: what is put into the index, and queries that no character can break."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence

from contextstash_storage.bodies import packed, unpacked
from contextstash_storage.records import SearchHit
from contextstash_storage.rows import message_of

MOST_TERMS = 64
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"\w")

_QUERY = """
SELECT messages.message, sessions.session_id, messages.seq, messages.key, messages.derived, messages.created_at,
       bm25(search_index), search_texts.text, sessions.session
FROM search_index
JOIN messages ON messages.message = search_index.rowid
JOIN sessions ON sessions.session = messages.session
JOIN search_texts ON search_texts.message = messages.message
WHERE search_index MATCH ? AND sessions.owner = ? {session} {scope}
ORDER BY bm25(search_index), messages.message DESC LIMIT ?
"""
_SCOPES = {
    "all": "",
    "outputs": "AND EXISTS"
    " (SELECT 1 FROM outputs WHERE outputs.session = messages.session AND outputs.seq = messages.seq)",
    "messages": "AND NOT EXISTS"
    " (SELECT 1 FROM outputs WHERE outputs.session = messages.session AND outputs.seq = messages.seq)",
}


def index_text(db: sqlite3.Connection, message: int, text: str) -> None:
    """Make a message's text findable."""
    db.execute("INSERT INTO search_index (rowid, text) VALUES (?, ?)", (message, _indexed(text)))
    db.execute(
        "INSERT INTO search_texts (message, text) VALUES (?, ?)",
        (message, packed(text.encode("utf-8", "surrogatepass"))),
    )


def forget_texts(db: sqlite3.Connection, session: int) -> None:
    """Take all of a session's texts out of the index."""
    rows = db.execute(
        "SELECT search_texts.message, search_texts.text FROM search_texts"
        " JOIN messages USING (message) WHERE messages.session = ?",
        (session,),
    )
    for message, text in rows:
        db.execute(
            "INSERT INTO search_index (search_index, rowid, text) VALUES ('delete', ?, ?)",
            (message, _indexed(_decoded(text))),
        )


def _decoded(stored: bytes) -> str:
    return unpacked(stored).decode("utf-8", "surrogatepass")


def _indexed(text: str) -> str:
    """The text as the index sees it: camelCase as words, nothing that SQLite's text can't hold."""
    spaced = _CAMEL.sub(" ", text) if len(text) < 200_000 else text
    return spaced.replace("\0", " ").encode("utf-8", "replace").decode()


def search(
    db: sqlite3.Connection, owner: str, query: str, session_id: str | None, scope: str, limit: int
) -> list[SearchHit]:
    """Messages that hold all terms, best first, then those that hold some of them."""
    terms = _terms(query)
    if not terms:
        return []
    hits: dict[int, SearchHit] = {}
    for joint in (" AND ", " OR ") if len(terms) > 1 else (" AND ",):
        for row in _matches(db, owner, joint.join(terms), session_id, scope, limit):
            if len(hits) < limit and row[0] not in hits:
                hits[row[0]] = _hit(db, row)
        if len(hits) >= limit:
            break
    return list(hits.values())


def _terms(query: str) -> list[str]:
    """The query's words as quoted phrases, so that no character in them is an operator."""
    words = dict.fromkeys(_indexed(word).replace('"', " ") for word in query.split())
    return [f'"{word}"' for word in words if _WORD.search(word)][:MOST_TERMS]


def _matches(
    db: sqlite3.Connection, owner: str, match: str, session_id: str | None, scope: str, limit: int
) -> Sequence[tuple[int, str, int, str | None, str, str, float, bytes, int]]:
    session = "" if session_id is None else "AND sessions.session_id = ?"
    named = () if session_id is None else (session_id,)
    sql = _QUERY.format(session=session, scope=_SCOPES[scope])
    return db.execute(sql, (match, owner, *named, limit)).fetchall()


def _hit(db: sqlite3.Connection, row: tuple[int, str, int, str | None, str, str, float, bytes, int]) -> SearchHit:
    _, session_id, seq, key, derived, created, rank, text, session = row
    message = message_of(session_id, (seq, key, derived, created), None)
    handles = db.execute(
        "SELECT handle FROM outputs WHERE session = ? AND seq = ? ORDER BY block", (session, seq)
    ).fetchall()
    return SearchHit(
        session_id=session_id,
        seq=seq,
        role=message.role,
        handles=tuple(handle for (handle,) in handles),
        text=_decoded(text),
        score=-rank,
    )
