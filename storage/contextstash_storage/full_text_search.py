"""Full-text search: what is put into the index, and queries that no character can break."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator

from contextstash_storage.bodies import unfolded
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import SearchHit
from contextstash_storage.rows import message_of

MAX_TERMS = 64
MAX_QUERY_CHARACTERS = 4_000

MAX_NAME_LENGTH = 64
"""Longer runs of letters are data, not names made of words."""

SEARCHED_CHARACTERS = 20_000
"""How much of a text is searched for names at a time; that takes about 1 ms."""

_SPACE = re.compile(r"\s")
_CAMEL_NAME = re.compile(r"\b\w*?[a-z0-9][A-Z]\w*")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TERM = re.compile(r"\w+(?:[./@+-]+\w+){0,15}")
_WORD = re.compile(r"[^\W_]")

_RANKED = """
SELECT search_index.rowid, bm25(search_index) AS rank
FROM search_index
JOIN messages ON messages.message = search_index.rowid
JOIN sessions ON sessions.session = messages.session
WHERE search_index MATCH ? AND sessions.owner = ? {session} {scope}
ORDER BY rank, search_index.rowid DESC LIMIT ?
"""
_IS_OUTPUT = "EXISTS (SELECT 1 FROM outputs WHERE outputs.session = messages.session AND outputs.seq = messages.seq)"
_SCOPES = {"all": "", "outputs": f"AND {_IS_OUTPUT}", "messages": f"AND NOT {_IS_OUTPUT}"}


def index_text(db: sqlite3.Connection, message: int, text: str) -> None:
    """Make a message's text findable; `text` is what `indexed` returned for it."""
    db.execute("INSERT INTO search_index (rowid, text) VALUES (?, ?)", (message, text))


def forget_text(db: sqlite3.Connection, message: int, stored: bytes) -> None:
    """Remove a message's stored text from the index; FTS5 needs the exact text that was inserted. Its words stay in the
    index's pages, marked as deleted, until these are merged."""
    db.execute(
        "INSERT INTO search_index (search_index, rowid, text) VALUES ('delete', ?, ?)",
        (message, indexed(_text(db, message, stored))),
    )


def merge_index(db: sqlite3.Connection, pages: int) -> bool:
    """Merge about `pages` pages of the index; False if there was nothing to merge. A negative number first marks the
    whole index for merging: once that is merged, no deleted word is left."""
    before = db.total_changes
    db.execute("INSERT INTO search_index (search_index, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before >= 2  # FTS5's own sign; the row inserted here is one change


def _text(db: sqlite3.Connection, message: int, stored: bytes) -> str:
    blobs = db.execute(
        "SELECT content FROM message_blobs JOIN blobs USING (blob) WHERE message = ? ORDER BY number", (message,)
    )
    return unfolded(stored, [content for (content,) in blobs])


def indexed(text: str) -> str:
    """The text as the index sees it, followed by the words that its camelCase names are made of.

    The result for a text must never change: otherwise the index could no longer delete that text.
    """
    names = [name for name in dict.fromkeys(_camel_names(text)) if len(name) <= MAX_NAME_LENGTH]
    return _storable(" ".join([text, *(_CAMEL.sub(" ", name) for name in names)]))


def _camel_names(text: str) -> Iterator[str]:
    """The camelCase names of a text. It is searched in pieces cut at spaces: while one search lasts, no other thread
    of the process runs, the event loop's included."""
    start = 0
    while start < len(text):
        cut = _SPACE.search(text, start + SEARCHED_CHARACTERS)
        end = cut.start() if cut else len(text)
        yield from _CAMEL_NAME.findall(text, start, end)
        start = end


def _storable(text: str) -> str:
    """The text without what SQLite's text can't hold."""
    return text.replace("\0", " ").encode("utf-8", "replace").decode()


def search(
    db: sqlite3.Connection, owner: str, query: str, session_id: str | None, scope: str, limit: int
) -> list[SearchHit]:
    """Messages that hold all terms, best first, then those that hold some of them.

    Raises BadInputError if `scope` is none of `all`, `outputs`, `messages`.
    """
    if scope not in _SCOPES:
        raise BadInputError(f"There is no scope '{scope}'. Known: {', '.join(_SCOPES)}.")
    terms = _terms(query)
    if not terms or limit <= 0:
        return []
    found = _ranked(db, owner, " AND ".join(terms), session_id, scope, limit)
    if len(found) < limit and len(terms) > 1:
        some = _ranked(db, owner, " OR ".join(terms), session_id, scope, limit)
        found |= {message: rank for message, rank in some.items() if message not in found}
    return [_hit(db, message, rank) for message, rank in list(found.items())[:limit]]


def _terms(query: str) -> list[str]:
    """The query's words as quoted phrases, so that no character in them is an operator. A path or a dotted name
    is one phrase: its words stand together."""
    words = dict.fromkeys(_TERM.findall(_storable(query[:MAX_QUERY_CHARACTERS])))
    return [f'"{word}"' for word in words if _WORD.search(word)][:MAX_TERMS]


def _ranked(
    db: sqlite3.Connection, owner: str, match: str, session_id: str | None, scope: str, limit: int
) -> dict[int, float]:
    session = "" if session_id is None else "AND sessions.session_id = ?"
    named = () if session_id is None else (session_id,)
    sql = _RANKED.format(session=session, scope=_SCOPES[scope])
    return dict(db.execute(sql, (match, owner, *named, limit)).fetchall())


def _hit(db: sqlite3.Connection, number: int, rank: float) -> SearchHit:
    session, session_id, *row, stored = db.execute(
        "SELECT session, session_id, seq, key, derived, messages.created_at, search_text"
        " FROM messages JOIN sessions USING (session) WHERE message = ?",
        (number,),
    ).fetchone()
    seq, key, derived, created = row
    message = message_of(session_id, (seq, key, derived, created), None)
    handles = db.execute("SELECT handle FROM outputs WHERE session = ? AND seq = ? ORDER BY block", (session, seq))
    return SearchHit(
        session_id=session_id,
        seq=seq,
        role=message.role,
        handles=tuple(handle for (handle,) in handles),
        text=_text(db, number, stored),
        score=-rank,
    )
