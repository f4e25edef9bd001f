"""How well the entries of the index in SQLite match a query, by BM25 of the entries that the owner may see.

FTS5 knows how rare a word is in the whole index. If several owners share it, the scores and the order of one's own hits
would tell how many texts of others have a word: so there each term is scored for itself, and its rarity replaced. What
remains of others in a score is the average length of all entries.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence

from contextstash_storage.search.query import CALL_WEIGHT
from contextstash_storage.search.ranking import rarity
from contextstash_storage.sqlite.rows import DELETED_OWNER

ENTRIES_A_MESSAGE = 2
"""Of an entry for each text, call and output, about so many in a message: for the rarity of words among the owner's."""

_WEIGHTS = {"place": 0.0, "call": CALL_WEIGHT, "text": 1.0}

_OTHERS = """
SELECT EXISTS (SELECT 1 FROM sessions WHERE owner < ?1 AND owner != ?2)
    OR EXISTS (SELECT 1 FROM sessions WHERE owner > ?1 AND owner != ?2)
"""
_BEST = """
SELECT rowid, -{bm25} AS score FROM search_pieces WHERE search_pieces MATCH ? ORDER BY score DESC, rowid DESC LIMIT ?
"""
_BEST_AMONG = """
SELECT entry, -{bm25} AS score FROM search_pieces
CROSS JOIN search_entries ON entry = search_pieces.rowid CROSS JOIN messages USING (message)
WHERE search_pieces MATCH ? AND messages.session IN (SELECT value FROM json_each(?))
ORDER BY score DESC, entry DESC LIMIT ?
"""
_OWN = """
SELECT entry, -{bm25} AS score FROM search_pieces
CROSS JOIN search_entries ON entry = search_pieces.rowid CROSS JOIN messages USING (message)
CROSS JOIN sessions USING (session)
WHERE search_pieces MATCH ? AND sessions.owner = ?
"""


def _scored(db: sqlite3.Connection, query: str) -> str:
    """The query with the ranking function. The columns of the index are in another order in databases of former
    versions."""
    columns = [name for _, name, *_ in db.execute("PRAGMA table_info(search_pieces)")]
    return query.format(bm25=f"bm25(search_pieces, {', '.join(str(_WEIGHTS[name]) for name in columns)})")


def is_shared(db: sqlite3.Connection, owner: str) -> bool:
    """Whether another owner has sessions in the database. Two looks into the index of owners, however many sessions
    there are."""
    return bool(db.execute(_OTHERS, (owner, DELETED_OWNER)).fetchone()[0])


def best_entries(
    db: sqlite3.Connection, wanted: Sequence[str], operator: str, marks: Sequence[str], most: int
) -> dict[int, float]:
    """The best entries with any (`OR`) or all (`AND`) of the terms and with all marks, and their scores."""
    return dict(db.execute(_scored(db, _BEST), (_expression(wanted, operator, marks), most)))


def best_entries_among(
    db: sqlite3.Connection,
    wanted: Sequence[str],
    operator: str,
    marks: Sequence[str],
    most: int,
    sessions: Sequence[int],
) -> dict[int, float]:
    """The same of these sessions, which are most of the database."""
    return dict(
        db.execute(_scored(db, _BEST_AMONG), (_expression(wanted, operator, marks), json.dumps(sessions), most))
    )


def own_entries(
    db: sqlite3.Connection, owner: str, wanted: Sequence[str], marks: Sequence[str], messages: int
) -> tuple[dict[int, float], set[int]]:
    """All entries of the owner with any of the terms and with all marks, and their scores; and those with all
    of several terms. `messages` is how many messages are searched."""
    [indexed] = db.execute("SELECT count(*) FROM search_entries").fetchone()
    scores: dict[int, float] = {}
    having_all: set[int] | None = None
    own = _scored(db, _OWN)
    for term in wanted:
        word = [term]
        [count] = db.execute(
            "SELECT count(*) FROM search_pieces WHERE search_pieces MATCH ?", (_expression(word, "OR", ()),)
        ).fetchone()
        found = dict(db.execute(own, (_expression(word, "OR", marks), owner)))
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
