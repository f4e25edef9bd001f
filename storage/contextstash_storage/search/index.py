"""The rows of the search index, inserted with a message; and the number that a call and its output have in common."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from contextstash_storage.bodies import body_of, readable
from contextstash_storage.records import Block
from contextstash_storage.rows import blocks_of, fields_of
from contextstash_storage.search.documents import Document, Kind, documents, texts_of
from contextstash_storage.transaction import IndexedPiece, Tx, listed, text_of

CALL_MESSAGES = 60
"""How many messages before an output are searched for its call; as many as when the output is named by its call."""

_BLOCKS = 65_536
"""More blocks than a message has that is stored; the number of a pair is made of a message's and a block's."""


def own_pair(message: int, block: int) -> int:
    """The number that a call and its output have in common: the call's message and block."""
    return message * _BLOCKS + min(block, _BLOCKS - 1)


def call_of_pair(pair: int) -> tuple[int, int]:
    """The message and block of a pair's call."""
    return divmod(pair, _BLOCKS)


class NewText(NamedTuple):
    """A stored message that is to be found: its row, its position, its blocks, the facts in its row, and the rows of
    the index for it."""

    message: int
    seq: int
    blocks: Sequence[Block]
    facts: str
    pieces: Sequence[Document]


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
    if any(piece.kind is Kind.OUTPUT for text in texts for piece in text.pieces):
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
    """Make stored messages findable."""
    calls = _calls_before(tx, session, texts)
    rows = [(text.message, piece, _pair(text, piece, calls)) for text in texts for piece in text.pieces]
    numbers = tx.reserve("entries", "entry", len(rows)) if rows else []
    tx.many(
        "INSERT INTO entries (entry, message, block, piece, kind, pair, call_words) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (number, message, piece.block, piece.piece, int(piece.kind), pair or None, piece.words)
            for number, (message, piece, pair) in zip(numbers, rows, strict=True)
        ],
    )
    words = tx.index.insert(tx, [_indexed(n, owner, session, *row) for n, row in zip(numbers, rows, strict=True)])
    counted = "UPDATE sessions SET entry_count = entry_count + ?, word_count = word_count + ? WHERE session = ?"
    tx.execute(counted, (len(rows), words, session))


def _pair(text: NewText, piece: Document, calls: _Calls) -> int:
    """The pair that a piece is of; 0 for what was said, its own if it is a call, or an output whose call is not
    recorded."""
    if piece.kind is Kind.TEXT:
        return 0
    own = own_pair(text.message, piece.block)
    call_id = text.blocks[piece.block].call_id
    if piece.kind is Kind.CALL or call_id is None:
        return own
    return calls.pair(call_id, text.seq) or own


def _indexed(entry: int, owner: str, session: int, message: int, piece: Document, pair: int) -> IndexedPiece:
    call, text = piece.fields(call_is_recorded=pair != own_pair(message, piece.block))
    return IndexedPiece(entry, owner, session, piece.marks, call, text)


def read_documents(tx: Tx, messages: Iterable[int]) -> dict[int, list[Document]]:
    """The documents of those of these messages that are stored, have a text and are not damaged."""
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
        message: documents(texts_of(found.texts, body_of(found.body)), blocks_of(facts), calls[message])
        for message, session, seq, facts in rows
        if (found := stored[session].get(seq)) is not None and found.texts is not None
    }
