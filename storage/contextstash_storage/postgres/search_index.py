"""The rows of the search index in PostgreSQL: the same documents as in SQLite, as vectors of words."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence

from contextstash_storage.records import Block
from contextstash_storage.search.call_pairs import CALL_MESSAGES, MessageCalls, own_pair, pair_of
from contextstash_storage.search.documents import Kind, Piece, kind_mark, tool_mark
from contextstash_storage.sql.steps import Key, Statement, Steps

MAX_WORD_LENGTH = 500
"""Longer runs of letters are data. PostgreSQL takes words of at most 2,046 bytes."""

_WORD = re.compile(r"[^\W_]+")

INSERT = (
    "INSERT INTO search_entries (owner, session_id, seq, block, piece, message, kind, pair, words, vector)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, array_to_tsvector($10::text[])"
    " || setweight(to_tsvector('contextstash', $11), 'A') || to_tsvector('contextstash', $12))"
)


def plain_words(text: str) -> str:
    """The words of a text as SQLite's `unicode61` reads them, between spaces, so that PostgreSQL's own parser (which
    sees paths, hosts and numbers with signs) has nothing left to interpret."""
    if not text.isascii():
        text = "".join(char for char in unicodedata.normalize("NFKD", text) if not unicodedata.combining(char))
    return " ".join(word for word in _WORD.findall(text.lower()) if len(word) <= MAX_WORD_LENGTH)


def owner_mark(owner: str) -> str:
    """An owner as one word of the index, which is in no text: it begins with a slash."""
    return f"/o{_digest(owner)}"


def session_mark(key: Key) -> str:
    """A session as one word of the index."""
    return f"/s{_digest(chr(0).join(key))}"


def kind_word(kind: Kind) -> str:
    """A kind as one word of the index."""
    return f"/{kind_mark(kind)}"


def tool_word(tool: str) -> str:
    """A tool's name as one word of the index."""
    return f"/{tool_mark(tool)}"


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class CallsBefore:
    """The calls of a session before a message, newest first: those of the batch that is being stored as they come, and
    those that are stored, which are read if there is an output."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, MessageCalls]] = []
        self._seq = 0

    def extend(self, rows: Iterable[tuple[int, int, str]]) -> None:
        """Add stored messages, newest first."""
        self._calls += [(seq, MessageCalls(message, derived)) for seq, message, derived in rows]

    def before(self, seq: int) -> CallsBefore:
        """The same, for the message at this position."""
        self._seq = seq
        return self

    def add(self, seq: int, message: int, derived: str) -> None:
        """Add the newest message; those that are too old for its successors are forgotten."""
        near = [each for each in self._calls if each[0] >= seq - CALL_MESSAGES]
        self._calls = [(seq, MessageCalls(message, derived)), *near]

    def pair(self, call_id: str) -> int:
        """The pair of the last call of this id, 0 if there is none."""
        for seq, calls in self._calls:
            if seq < self._seq - CALL_MESSAGES:
                break
            if seq < self._seq and (pair := calls.pair(call_id)):
                return pair
        return 0


def read_calls(key: Key, seq: int) -> Steps[list[tuple[int, int, str]]]:
    """The messages with calls before a position, newest first: position, number and what is derived from each."""
    text = (
        "SELECT seq, message, derived FROM messages WHERE {of} AND seq < ? AND seq >= ? AND has_calls ORDER BY seq DESC"
    )
    rows = yield Statement(text, (*key, seq, seq - CALL_MESSAGES))
    return [(row[0], row[1], row[2]) for row in rows]


def entry_rows(
    key: Key, seq: int, message: int, blocks: Sequence[Block], found: Iterable[Piece], calls: CallsBefore
) -> list[tuple[object, ...]]:
    """The rows for the pieces of a message, for INSERT."""
    rows: list[tuple[object, ...]] = []
    pairs: dict[int, int] = {}
    before = calls.before(seq)
    for piece in found:
        document = piece.document
        if document.block not in pairs:
            pairs[document.block] = pair_of(message, blocks, document, before)
        pair = pairs[document.block]
        call, text = (
            plain_words(field) for field in piece.fields(call_is_recorded=pair != own_pair(message, document.block))
        )
        marks = [owner_mark(key[0]), session_mark(key), kind_word(document.kind)]
        if document.tool:
            marks.append(tool_word(document.tool))
        words = _count(call) + _count(text)
        place = (*key, seq, document.block, piece.number, message)
        rows.append((*place, document.kind.value, pair or None, words, marks, call, text))
    return rows


def _count(words: str) -> int:
    return words.count(" ") + 1 if words else 0


def words_of(rows: Iterable[Sequence[object]]) -> int:
    """How many words these rows have."""
    return sum(int(str(row[8])) for row in rows)


def token_sums(blocks: Sequence[Block]) -> tuple[list[str], list[int]]:
    """The tokens of a message's blocks by type."""
    sums: dict[str, int] = {}
    for block in blocks:
        sums[block.type] = sums.get(block.type, 0) + block.tokens
    return list(sums), list(sums.values())
