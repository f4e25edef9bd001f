"""The words of the index in SQLite: an FTS5 table that holds no texts, and forgets a row by its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextstash_storage.documents import kind_mark
from contextstash_storage.transaction import Found, Piece, Place, Tx, only

SCHEMA = (
    "CREATE VIRTUAL TABLE words USING fts5 (text, call, place, content = '', contentless_delete = 1,"
    " tokenize = 'porter unicode61')"
)

ENTRIES_A_MESSAGE = 2
"""Of an entry for each text, call and output, about so many in a message: for the rarity of words among the owner's."""

_BM25 = "bm25(words, 1.0, ?, 0.0)"
"""Of the columns text, call, whose weight is a value, and place."""

_BEST = f"SELECT rowid, -{_BM25} AS score FROM words WHERE words MATCH ? ORDER BY score DESC, rowid DESC LIMIT ?"
_OWN = f"""
SELECT entry, -{_BM25} AS score FROM words
CROSS JOIN entries ON entry = words.rowid CROSS JOIN sessions USING (session)
WHERE words MATCH ? AND sessions.owner = ?
"""


def insert(tx: Tx, session: int, _: str, pieces: Sequence[tuple[int, Piece]]) -> int:
    """Store the words of these. How many they are FTS5 knows itself."""
    rows = [(entry, f"{_mark(session)} {kind_mark(piece.kind)}", *piece.fields) for entry, piece in pieces]
    tx.many("INSERT INTO words (rowid, place, call, text) VALUES (?, ?, ?, ?)", rows)
    return 0


def _mark(session: int) -> str:
    """A session's row as one word of the index."""
    return f"s{session}"


def attempts(tx: Tx, place: Place, wanted: Sequence[str], ranks: int) -> Iterator[Found]:
    """What matches any of the terms, found in the quickest way first, until there is enough."""
    from contextstash_storage.search import MORE_MATCHES  # not at the head: a hook stores words, and searches none

    places: list[str] = []
    if place.kinds:
        places.append(_marked([kind_mark(kind) for kind in place.kinds]))
    if place.sessions:
        places.append(_marked([_mark(each) for each in place.sessions]))
    if place.is_database_shared:
        yield Found(*_own_entries(tx, place, wanted, places), is_complete=True)
        return
    for count in (ranks, MORE_MATCHES):
        scores = _best_entries(tx, _expression(wanted, "OR", places), count)
        # Those with all terms, whatever their rank, since one term of a call outweighs many of a text.
        whole = _best_entries(tx, _expression(wanted, "AND", places), count) if len(wanted) > 1 else {}
        yield Found({**whole, **scores}, whole.keys(), is_complete=len(scores) < count)


def _best_entries(tx: Tx, expression: str, most: int) -> dict[int, float]:
    """The best entries and their scores."""
    from contextstash_storage.search import CALL_WEIGHT

    return dict(tx.rows(_BEST, (CALL_WEIGHT, expression, most)))


def _own_entries(
    tx: Tx, place: Place, wanted: Sequence[str], marks: Sequence[str]
) -> tuple[dict[int, float], set[int]]:
    """All entries of the owner with any of the terms and with all marks, and their scores; and those with all
    of several terms."""
    from contextstash_storage.search import CALL_WEIGHT, rarity

    indexed = only(tx.rows("SELECT count(*) FROM entries"))
    scores: dict[int, float] = {}
    having_all: set[int] | None = None
    for term in wanted:
        count = only(tx.rows("SELECT count(*) FROM words WHERE words MATCH ?", (_expression([term], "OR", ()),)))
        found = dict(tx.rows(_OWN, (CALL_WEIGHT, _expression([term], "OR", marks), place.owner)))
        factor = rarity(len(found), ENTRIES_A_MESSAGE * place.messages) / rarity(count, indexed)
        for entry, score in found.items():
            scores[entry] = scores.get(entry, 0.0) + factor * score
        having_all = set(found) if having_all is None else having_all & found.keys()
    return scores, having_all if having_all and len(wanted) > 1 else set()


def _expression(wanted: Sequence[str], operator: str, marks: Sequence[str]) -> str:
    """The query for FTS5, each term quoted so that no character in it is an operator."""
    return " AND ".join([f"{{call text}} : ({_any_of(wanted, operator)})", *marks])


def _marked(words: Sequence[str]) -> str:
    """An entry has one of these words as a mark."""
    return f"place : ({_any_of(words)})"


def _any_of(words: Sequence[str], operator: str = "OR") -> str:
    return f" {operator} ".join(f'"{word}"' for word in words)


MAX_REWRITTEN = 50_000
"""Pages of the index, of 4 KB, up to which its table of page starts is written again after a deletion: that many take
about 60 ms."""


def rewrite_terms(tx: Tx) -> None:
    """Write the index's table of page starts again. It holds single words, and its rows are ordered by key: when they
    move from page to page, SQLite leaves copies of them in the unused part of pages. It is 0.5 % of the index."""
    if only(tx.rows("SELECT count(*) FROM words_idx")) <= MAX_REWRITTEN:
        rows = tx.rows("SELECT segid, term, pgno FROM words_idx ORDER BY segid, term")
        tx.execute("DELETE FROM words_idx")
        tx.many("INSERT INTO words_idx (segid, term, pgno) VALUES (?, ?, ?)", rows)


def merge(tx: Tx, pages: int) -> None:
    """Merge about `pages` pages of the index. A negative number first marks the whole index for merging: once that is
    merged, no deleted word is left."""
    tx.execute("INSERT INTO words (words, rank) VALUES ('merge', ?)", (pages,))
