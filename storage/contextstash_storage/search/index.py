"""The rows of the search index: inserted with a message, or later in the background if they are many; and the number
that a call and its output have in common."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from contextstash_storage.bodies import readable
from contextstash_storage.notes import put
from contextstash_storage.records import Block, NewMessage
from contextstash_storage.rows import blocks_of, fields_of
from contextstash_storage.search.documents import Document, Kind, Piece, Searchable, pieces
from contextstash_storage.transaction import IndexedPiece, Tx, listed, only, text_of

INLINE_CHARACTERS = 120_000
"""A message with more text than this is stored first and indexed afterwards, in pieces: indexing takes about 100 ms for
each million characters, in part at the commit."""

INLINE_BLOCKS = 1_000
"""The same for a message with more blocks: each has at least one row of its own, about 50 µs."""

PIECE_SET_CHARACTERS = 130_000
"""Text that is inserted in one transaction: 15 ms before the commit and as much in it. No clock can stop the commit
(bench/write_lock.py)."""

PIECE_SET_SIZE = 500
"""The same by the number of pieces, of which a message with many blocks has many short ones."""

CALL_MESSAGES = 60
"""How many messages before an output are searched for its call; as many as when the output is named by its call."""

_BLOCKS = 65_536
"""More blocks than a message has that is stored; the number of a pair is made of a message's and a block's."""


def is_indexed_later(message: NewMessage) -> bool:
    """Whether a message that is to be stored is indexed after that, in pieces."""
    return sum(len(text) for _, text in message.texts) > INLINE_CHARACTERS or len(message.blocks) > INLINE_BLOCKS


def own_pair(message: int, block: int) -> int:
    """The number that a call and its output have in common: the call's message and block."""
    return message * _BLOCKS + min(block, _BLOCKS - 1)


def call_of_pair(pair: int) -> tuple[int, int]:
    """The message and block of a pair's call."""
    return divmod(pair, _BLOCKS)


class NewText(NamedTuple):
    """A stored message that is to be found: its row, its position, its blocks, the facts in its row, and its pieces;
    None if these come later."""

    message: int
    seq: int
    blocks: Sequence[Block]
    facts: str
    pieces: Sequence[Piece] | None


class _Calls:
    """The calls of a session, by the facts of its messages. Each message's are read once, as it can have 10,000."""

    def __init__(self) -> None:
        self._facts: list[tuple[int, int, str]] = []
        self._read: dict[int, dict[str, int]] = {}

    def add(self, seq: int, message: int, facts: str) -> None:
        self._facts.append((seq, message, facts))

    def pair(self, call_id: str, seq: int) -> int:
        """The pair of the last call of this id before a position, 0 if there is none."""
        for place, message, facts in reversed(self._facts):
            if place < seq - CALL_MESSAGES:
                break
            named = place < seq and (call_id in facts or not call_id.isascii())
            if named and (pair := self._calls(message, facts).get(call_id)) is not None:
                return pair
        return 0

    def _calls(self, message: int, facts: str) -> dict[str, int]:
        if message not in self._read:
            found: dict[str, int] = {}
            for number, block in enumerate(fields_of(facts)["blocks"]):
                if block["type"] == "tool_call" and block.get("call_id"):
                    found.setdefault(block["call_id"], own_pair(message, number))
            self._read[message] = found
        return self._read[message]


def _calls_before(tx: Tx, session: int, texts: Sequence[NewText]) -> _Calls:
    """The calls that outputs among these may be of."""
    calls = _Calls()
    first = texts[0].seq
    if any(piece.document.kind is Kind.OUTPUT for text in texts for piece in text.pieces or ()):
        rows = tx.rows(
            "SELECT seq, message, facts FROM messages WHERE session = ? AND seq < ? AND seq >= ? ORDER BY seq",
            (session, first, first - CALL_MESSAGES),
        )
        for row in rows:
            calls.add(*row)
    for text in texts:
        calls.add(text.seq, text.message, text.facts)
    return calls


def index_messages(tx: Tx, owner: str, session: int, texts: Sequence[NewText]) -> None:
    """Make stored messages findable, or remember that this is still to be done."""
    for text in texts:
        if text.pieces is None:
            put(tx, session, "unindexed", str(text.message), owner)
    calls = _calls_before(tx, session, texts)
    rows = [row for text in texts for row in _entries(text, calls)]
    numbers = tx.reserve("entries", "entry", len(rows)) if rows else []
    tx.many(
        "INSERT INTO entries (entry, message, block, piece, kind, pair) VALUES (?, ?, ?, ?, ?, ?)",
        [
            (number, message, piece.document.block, piece.number, int(piece.document.kind), pair or None)
            for number, (message, piece, pair) in zip(numbers, rows, strict=True)
        ],
    )
    words = tx.index.insert(tx, [_indexed(n, owner, session, *row) for n, row in zip(numbers, rows, strict=True)])
    counted = "UPDATE sessions SET entry_count = entry_count + ?, word_count = word_count + ? WHERE session = ?"
    tx.execute(counted, (len(rows), words, session))


def _entries(text: NewText, calls: _Calls) -> Iterator[tuple[int, Piece, int]]:
    """The message, piece and pair of each row of the index."""
    pairs: dict[int, int] = {}
    for piece in text.pieces or ():
        block = piece.document.block
        if block not in pairs:
            pairs[block] = _pair(text, piece.document, calls)
        yield text.message, piece, pairs[block]


def _pair(text: NewText, document: Document, calls: _Calls) -> int:
    """The pair that a document is of; 0 for what was said, its own if it is a call, or an output whose call is not
    recorded."""
    if document.kind is Kind.TEXT:
        return 0
    own = own_pair(text.message, document.block)
    call_id = text.blocks[document.block].call_id
    if document.kind is Kind.CALL or call_id is None:
        return own
    return calls.pair(call_id, text.seq) or own


def _indexed(entry: int, owner: str, session: int, message: int, piece: Piece, pair: int) -> IndexedPiece:
    document = piece.document
    call, text = piece.fields(call_is_recorded=pair != own_pair(message, document.block))
    return IndexedPiece(entry, owner, session, document.marks, call, text)


def read_searchables(tx: Tx, messages: Iterable[int]) -> dict[int, Searchable]:
    """What the index needs of those of these messages that are stored, have a text and are not damaged."""
    named = (listed(sorted(set(messages))),)
    calls: defaultdict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for message, block, tool, argument in tx.rows(
        "SELECT message, block, tool, argument FROM messages JOIN outputs USING (session, seq)"
        f" WHERE message IN {tx.numbers}",
        named,
    ):
        calls[message][block] = (text_of(tool), text_of(argument))
    rows = tx.rows(f"SELECT message, session, seq, facts FROM messages WHERE message IN {tx.numbers}", named)
    seqs: defaultdict[int, list[int]] = defaultdict(list)
    for _, session, seq, _ in rows:
        seqs[session].append(seq)
    stored = {session: readable(tx, session, places) for session, places in seqs.items()}
    return {
        message: Searchable(message, session, seq, blocks_of(facts), calls[message], found.body, found.texts)
        for message, session, seq, facts in rows
        if (found := stored[session].get(seq)) is not None and found.texts is not None
    }


# What is indexed later

_QUEUED = "FROM notes JOIN sessions USING (session) WHERE kind = 'unindexed' AND sessions.owner <> '\x1fdeleted'"


def queued_messages(tx: Tx) -> int:
    """How many messages are still to be indexed."""
    return int(only(tx.rows(f"SELECT count(*) {_QUEUED}")))


def index_some(tx: Tx, seconds: float) -> bool:
    """Index queued messages, the newest first, for about this time; False if there are no more. Another process may do
    the same: what a message has in the index are its first pieces, in their order."""
    until = time.monotonic() + seconds
    while rows := tx.rows(f"SELECT session, key, record {_QUEUED} ORDER BY note DESC LIMIT 1"):
        session, key, owner = rows[0]
        if _indexed_some(tx, session, int(key), owner):
            return True
        tx.execute("DELETE FROM notes WHERE kind = 'unindexed' AND key = ? AND session = ?", (key, session))
        if time.monotonic() > until:
            return True
    return False


def _indexed_some(tx: Tx, session: int, message: int, owner: str) -> bool:
    """Index the next pieces of a message; False if there are no more."""
    # The lock keeps another process from adding the same pieces.
    tx.rows(f"SELECT session FROM sessions WHERE session = ?{tx.lock}", (session,))
    done = int(only(tx.rows("SELECT count(*) FROM entries WHERE message = ?", (message,))))
    found = read_searchables(tx, [message]).get(message)
    left = [] if found is None else _cut(found)[done:]
    if found is None or not left:
        return False
    some = left[: _at_once(left)]
    facts = only(tx.rows("SELECT facts FROM messages WHERE message = ?", (message,)))
    index_messages(tx, owner, session, [NewText(message, found.seq, found.blocks, facts, some)])
    return len(some) < len(left)


_last_cut: dict[bytes, list[Piece]] = {}


def _cut(found: Searchable) -> list[Piece]:
    """The pieces of a message, which are wanted again for each transaction that indexes some of them."""
    key = found.body
    if key not in _last_cut:
        _last_cut.clear()
        _last_cut[key] = pieces(found.documents())
    return _last_cut[key]


def _at_once(found: Sequence[Piece]) -> int:
    """How many of these pieces, from the first on, one transaction inserts."""
    characters = 0
    for number, piece in enumerate(found):
        if number == PIECE_SET_SIZE or characters >= PIECE_SET_CHARACTERS:
            return number
        characters += len(piece.text)
    return len(found)
