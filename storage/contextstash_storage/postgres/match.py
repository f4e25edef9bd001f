"""The words of the index in PostgreSQL: vectors of the words that SQLite's `unicode61` reads, scored as there."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator, Sequence

from contextstash_storage.documents import kind_mark
from contextstash_storage.search import CALL_WEIGHT, MORE_MATCHES, rarity
from contextstash_storage.transaction import Found, Piece, Place, Tx, listed

SCHEMA = (
    # English stems, and no stop words: as SQLite's `porter unicode61`.
    "CREATE TEXT SEARCH DICTIONARY contextstash_stem (TEMPLATE = snowball, LANGUAGE = english)",
    "CREATE TEXT SEARCH CONFIGURATION contextstash (COPY = pg_catalog.simple)",
    "ALTER TEXT SEARCH CONFIGURATION contextstash ALTER MAPPING FOR asciiword, word, numword WITH contextstash_stem",
    # The words of calls have weight A, those of texts D; marks of the place are in the vector too. `count` is of words.
    "CREATE TABLE words (rowid bigint PRIMARY KEY, count bigint NOT NULL, vector tsvector NOT NULL)",
    "CREATE INDEX words_by_word ON words USING gin (vector)",
)

COMMON_ENTRIES = 2_000
"""A term in more entries than this says little: it only adds to the score of what other terms find. Each entry takes
some 5 µs to score."""

MAX_CANDIDATES = 20_000
"""How many entries are scored at most, if all terms are common."""

MAX_WORD_LENGTH = 500
"""Longer runs of letters are data. PostgreSQL takes words of at most 2,046 bytes."""

K1, B = 1.2, 0.75
"""The constants of BM25 in SQLite."""

_WORD = re.compile(r"[^\W_]+")

_WEIGHTS = f"{{{1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, {1 / CALL_WEIGHT}, 1.0}}"
"""Of the words of texts (D) and of calls (A). `ts_rank_cd` of one term is the sum of the weights where it stands: with
CALL_WEIGHT before it, how often the term occurs, weighted as in SQLite."""

_INSERT = (
    "INSERT INTO words (rowid, count, vector) VALUES (?, ?, array_to_tsvector(CAST(? AS text[]))"
    " || setweight(to_tsvector('contextstash', ?), 'A') || to_tsvector('contextstash', ?))"
)

_COUNTS = f"""
SELECT CAST(term AS text), (
    SELECT count(*) FROM (
        SELECT FROM words
        WHERE vector @@ (CAST(? AS tsquery) && CAST(replace(CAST(term AS text), '<->', '&') AS tsquery))
        LIMIT {COMMON_ENTRIES}
    ) AS counted
)
FROM (SELECT DISTINCT phraseto_tsquery('contextstash', given) AS term FROM unnest(CAST(? AS text[])) AS given) AS terms
WHERE numnode(term) > 0
"""

# `setweight` of no words at all returns the vector as it is: taken out of its table's storage once, not for each term.
# `OFFSET 0` has the frequency computed once, and nothing sorted by vectors, which takes longer than all the rest.
_MATCHES = f"""
SELECT rowid, score, terms FROM (
    SELECT rowid, count, setweight(vector, 'D', CAST('{{}}' AS text[])) AS vector
    FROM words WHERE vector @@ CAST(? AS tsquery) LIMIT {MAX_CANDIDATES} OFFSET 0
) AS entry
CROSS JOIN LATERAL (
    SELECT count(*) AS terms,
        sum(weight * tf * {K1 + 1} / (tf + {K1} * ({1 - B} + {B} * entry.count / CAST(? AS float8)))) AS score
    FROM (
        SELECT weight, {CALL_WEIGHT} * ts_rank_cd('{_WEIGHTS}', vector, query) AS tf
        FROM unnest(CAST(CAST(? AS text[]) AS tsquery[]), CAST(? AS float8[])) AS term (query, weight)
        WHERE vector @@ query OFFSET 0
    ) AS frequency
) AS scored
ORDER BY CASE WHEN terms = ? THEN 1 ELSE 0 END DESC, score DESC, rowid DESC LIMIT ?
"""


def plain_words(text: str) -> str:
    """The words of a text as SQLite's `unicode61` reads them, between spaces, so that PostgreSQL's own parser (which
    sees paths, hosts and numbers with signs) has nothing left to interpret."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return " ".join(word for word in _WORD.findall(text.lower()) if len(word) <= MAX_WORD_LENGTH)


def _owner_mark(owner: str) -> str:
    """An owner as one word of the index, which is in no text: it begins with a slash."""
    return f"/o{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def insert(tx: Tx, session: int, owner: str, pieces: Sequence[tuple[int, Piece]]) -> int:
    """Store the words of these; returns how many words they have."""
    rows = []
    for entry, piece in pieces:
        call, text = map(plain_words, piece.fields)
        marks = [_owner_mark(owner), f"/s{session}", f"/{kind_mark(piece.kind)}"]
        rows.append((entry, len(call.split()) + len(text.split()), marks, call, text))
    tx.many(_INSERT, rows)
    return sum(count for _, count, *_ in rows)


def attempts(tx: Tx, place: Place, wanted: Sequence[str], ranks: int) -> Iterator[Found]:
    """What matches any of the terms: some, and then many."""
    # As if vectors cost nothing to read, PostgreSQL would read them all.
    tx.execute("SET LOCAL enable_seqscan = off")
    condition, values = "", (place.owner,)
    if place.sessions is not None:
        condition, values = f" AND session IN {tx.numbers}", (place.owner, listed(place.sessions))  # type: ignore[assignment]
    text = (
        f"SELECT coalesce(sum(entry_count), 0), coalesce(sum(word_count), 0) FROM sessions WHERE owner = ?{condition}"
    )
    [(entries, words)] = tx.rows(text, values)
    terms = tx.rows(_COUNTS, (_marks(place), [plain_words(term) for term in wanted]))
    rare = [term for term, count in terms if 0 < count < COMMON_ENTRIES]
    telling = rare or [term for term, count in terms if count]
    if not telling or not entries:
        return
    found = (
        f"({_marks(place)}) & ({' | '.join(f'({term})' for term in telling)})",
        max(1.0, float(words) / int(entries)),
        [term for term, _ in terms],
        [rarity(count, int(entries)) for _, count in terms],
        len(terms),
    )
    for most in (ranks, MORE_MATCHES):
        rows = tx.rows(_MATCHES, (*found, most))
        whole = [entry for entry, _, count in rows if count == len(terms)] if len(terms) > 1 else []
        yield Found({entry: score for entry, score, _ in rows}, whole, is_complete=len(rows) < most)


def _marks(place: Place) -> str:
    """What every entry there has."""
    marks = [[_owner_mark(place.owner)]]
    if place.sessions is not None:
        marks.append([f"/s{session}" for session in place.sessions])
    if place.kinds:
        marks.append([f"/{kind_mark(kind)}" for kind in place.kinds])
    return " & ".join("(" + " | ".join(f"'{mark}'" for mark in some) + ")" for some in marks)
