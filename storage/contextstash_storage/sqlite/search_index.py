"""The rows of the search index in SQLite: inserted with a message or later in the background, and removed again."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from contextstash_storage.codec.record_json import CALL_MARK, blocks_of, fields_of, text_size
from contextstash_storage.codec.segments import Stored, unpacked
from contextstash_storage.errors import StoreError
from contextstash_storage.records import Block
from contextstash_storage.search.call_pairs import CALL_MESSAGES, MessageCalls, own_pair, pair_of
from contextstash_storage.search.documents import (
    INLINE_BLOCKS,
    INLINE_CHARACTERS,
    Piece,
)
from contextstash_storage.search.searchable import Searchable
from contextstash_storage.sql.bodies import segments_at
from contextstash_storage.sqlite.connection import AGAIN_SECONDS, PAUSE_SECONDS, PIECE_SECONDS, PieceWork, run
from contextstash_storage.sqlite.output_rows import ARGUMENT, TOOL
from contextstash_storage.sqlite.rows import DELETED_OWNER

PIECE_SET_CHARACTERS = 130_000
"""Text that is inserted or removed in one transaction: 15 ms before the commit and as much in it. No clock can stop the
commit (bench/write_lock.py)."""

PIECE_SET_SIZE = 500
"""The same by the number of pieces, of which a message with many blocks has many short ones."""

MAX_REWRITTEN = 50_000
"""Pages of the index, of 4 KB, up to which its table of page starts is written again after a deletion: that many take
about 60 ms."""

_SEARCHABLE = "SELECT message, session, seq, derived FROM json_each(?) JOIN messages ON message = value"
_CALLS = f"""
SELECT message, outputs.block, {TOOL}, {ARGUMENT}
FROM json_each(?) CROSS JOIN messages ON message = value JOIN outputs USING (session, seq) ORDER BY message, block
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText(Searchable):
    """The text of a message, and where it stands: its row, and its session's row."""

    message: int
    session: int
    seq: int


def read_searchable(db: sqlite3.Connection, message: int) -> StoredText | None:
    """What the index needs of a stored message; None if it has no text, or is gone."""
    return read_searchables(db, [message]).get(message)


def read_searchables(db: sqlite3.Connection, messages: Sequence[int]) -> dict[int, StoredText]:
    """What the index needs of those of these messages that are stored, have a text and are not damaged."""
    named = (json.dumps(sorted(messages)),)
    calls: defaultdict[int, dict[int, tuple[str, str]]] = defaultdict(dict)
    for message, block, tool, argument in db.execute(_CALLS, named):
        calls[message][block] = (tool, argument or "")
    seqs: defaultdict[int, list[int]] = defaultdict(list)
    rows = db.execute(_SEARCHABLE, named).fetchall()
    for _, session, seq, _ in rows:
        seqs[session].append(seq)
    stored = {session: _contents(db, session, places) for session, places in seqs.items()}
    return {
        message: StoredText(
            blocks=blocks_of(derived),
            calls=calls[message],
            stored=found,
            message=message,
            session=session,
            seq=seq,
        )
        for message, session, seq, derived in rows
        if (found := stored[session].get(seq)) is not None and found.text is not None
    }


def _contents(db: sqlite3.Connection, session: int, seqs: Sequence[int]) -> dict[int, Stored]:
    """What is stored of the messages at these positions of a session that can be read."""
    key = (session,)
    found: dict[int, Stored] = {}
    wanted = set(seqs)
    for row in run(db, segments_at(key, seqs)):
        with suppress(StoreError):
            found.update(unpacked(key, *row, wanted))
    return found


def is_long(db: sqlite3.Connection, message: int) -> bool:
    """Whether a message has so much text that it is indexed in pieces; its text is not read for that."""
    [derived] = db.execute("SELECT derived FROM messages WHERE message = ?", (message,)).fetchone() or ("[0]",)
    blocks = fields_of(derived).get("blocks", ())
    return text_size(blocks) > INLINE_CHARACTERS or len(blocks) > INLINE_BLOCKS


def pieces_at_once(found: Iterable[Piece]) -> int:
    """How many of these pieces, from the first on, one transaction inserts or removes."""
    characters = 0
    for number, piece in enumerate(found):
        if number == PIECE_SET_SIZE or characters >= PIECE_SET_CHARACTERS:
            return number
        characters += len(piece.text)
    return PIECE_SET_SIZE


def insert_pieces(
    db: sqlite3.Connection, session: int, seq: int, message: int, blocks: Sequence[Block], found: Sequence[Piece]
) -> None:
    """Make pieces of a message findable."""
    pairs: dict[int, int] = {}
    calls = RecordedCalls(db, session, seq)
    for piece in found:
        block = piece.document.block
        if block not in pairs:
            pairs[block] = pair_of(message, blocks, piece.document, calls)
        pair = pairs[block]
        entry = db.execute(
            "INSERT INTO search_entries (message, block, piece, kind, pair) VALUES (?, ?, ?, ?, ?)",
            (message, block, piece.number, piece.document.kind.value, pair or None),
        ).lastrowid
        call, text = piece.fields(call_is_recorded=pair != own_pair(message, block))
        db.execute(
            "INSERT INTO search_pieces (rowid, place, call, text) VALUES (?, ?, ?, ?)",
            (entry, _place(session, piece), call, text),
        )


def remove_pieces(db: sqlite3.Connection, message: int, most: int) -> bool:
    """Remove up to so many of a message's rows from the index; returns whether it has more. Their words stay in the
    index's pages, marked as deleted, until these are merged."""
    rows = db.execute("SELECT entry FROM search_entries WHERE message = ? LIMIT ?", (message, most)).fetchall()
    db.executemany("DELETE FROM search_pieces WHERE rowid = ?", rows)
    db.executemany("DELETE FROM search_entries WHERE entry = ?", rows)
    return len(rows) == most


def _place(session: int, piece: Piece) -> str:
    return f"{session_mark(session)} {piece.place}"


def session_mark(session: int) -> str:
    """A session's row as one word of the index."""
    return f"s{session}"


class RecordedCalls:
    """The calls before a position, newest first. Each message is read once, since it can have 10,000 calls."""

    def __init__(self, db: sqlite3.Connection, session: int, seq: int) -> None:
        self._db = db
        self._before = (session, seq, seq - CALL_MESSAGES)
        self._read: list[MessageCalls] = []

    def pair(self, call_id: str) -> int:
        """The pair of the last call of this id, 0 if there is none."""
        return next((pair for message in self._messages() if (pair := message.pair(call_id))), 0)

    def _messages(self) -> Iterator[MessageCalls]:
        yield from self._read
        for message, derived in self._rows:
            self._read.append(MessageCalls(int(message), derived))
            yield self._read[-1]

    @cached_property
    def _rows(self) -> Iterator[tuple[int, str]]:
        return self._db.execute(
            "SELECT message, derived FROM messages WHERE session = ? AND seq < ? AND seq >= ?"
            " AND instr(derived, ?) ORDER BY seq DESC",
            (*self._before, CALL_MARK),
        )


def queue(db: sqlite3.Connection, message: int) -> None:
    """Remember that a message is still to be indexed, or to be indexed to its end."""
    db.execute("INSERT INTO search_queue (message) VALUES (?)", (message,))


def newest_queued(db: sqlite3.Connection) -> int | None:
    """The message to be indexed next: the newest, as it is the likeliest to be searched for."""
    row = db.execute(
        "SELECT message FROM search_queue LEFT JOIN messages USING (message) LEFT JOIN sessions USING (session)"
        " WHERE owner IS NOT ? ORDER BY message DESC LIMIT 1",
        (DELETED_OWNER,),
    ).fetchone()
    return None if row is None else int(row[0])


def queued_messages(db: sqlite3.Connection) -> int:
    """How many messages are still to be indexed."""
    [count] = db.execute("SELECT count(*) FROM search_queue").fetchone()
    return int(count)


def is_queued(db: sqlite3.Connection, message: int) -> bool:
    """Whether a message is still to be indexed, and its session is not being deleted."""
    row = db.execute(
        "SELECT 1 FROM search_queue JOIN messages USING (message) JOIN sessions USING (session)"
        " WHERE message = ? AND owner <> ?",
        (message, DELETED_OWNER),
    ).fetchone()
    return row is not None


def leave_queue(db: sqlite3.Connection, message: int) -> None:
    db.execute("DELETE FROM search_queue WHERE message = ?", (message,))


def indexed_pieces(db: sqlite3.Connection, message: int) -> int:
    """How many pieces of a message are in the index: the first ones, in their order."""
    [count] = db.execute("SELECT count(*) FROM search_entries WHERE message = ?", (message,)).fetchone()
    return int(count)


def rewrite_terms(db: sqlite3.Connection) -> None:
    """Write the index's table of page starts again. It holds single words, and its rows are ordered by key: when they
    move from page to page, SQLite leaves copies of them in the unused part of pages. It is 0.5 % of the index."""
    [pages] = db.execute("SELECT count(*) FROM search_pieces_idx").fetchone()
    if pages <= MAX_REWRITTEN:
        rows = db.execute("SELECT segid, term, pgno FROM search_pieces_idx ORDER BY segid, term").fetchall()
        db.execute("DELETE FROM search_pieces_idx")
        db.executemany("INSERT INTO search_pieces_idx (segid, term, pgno) VALUES (?, ?, ?)", rows)


def merge_index(db: sqlite3.Connection, pages: int) -> bool:
    """Merge about `pages` pages of the index; False if there was nothing to merge. A negative number first marks the
    whole index for merging: once that is merged, no deleted word is left."""
    before = db.total_changes
    db.execute("INSERT INTO search_pieces (search_pieces, rank) VALUES ('merge', ?)", (pages,))
    return db.total_changes - before >= 2  # FTS5's own sign; the row inserted here is one change


MAX_WAIT_SECONDS = 2.0
"""How long recording waits until a very long message can be found. It is stored by then, and a search says that some of
it is not indexed yet."""


class IndexWork(PieceWork):
    """Indexes what is queued, newest first."""

    def start(self) -> None:
        """Index everything that is queued, in the background."""
        self.task(self._until_done())

    async def wait(self) -> None:
        """Index what is queued; return after MAX_WAIT_SECONDS at the latest, while the rest goes on."""
        if not self.closing.is_set():
            await asyncio.wait([self.task(self._until_done())], timeout=MAX_WAIT_SECONDS)

    async def _until_done(self) -> None:
        async with self.alone:
            while not self.closing.is_set():
                try:
                    await self._all_indexed()
                    return
                except StoreError:  # locked for too long, or the disk is full: the queue is durable
                    await self.pause(AGAIN_SECONDS)

    async def _all_indexed(self) -> None:
        while not self.closing.is_set():
            more, large = await self.write(index_short_messages)
            if large is not None:
                await self._index_long(large)
            elif not more:
                break
            await asyncio.sleep(PAUSE_SECONDS)

    async def _index_long(self, message: int) -> None:
        searchable = await self.writer.run(lambda db: read_searchable(db, message))
        found = [] if searchable is None else await asyncio.to_thread(searchable.pieces)
        await self.pieces(lambda db: _index_some(db, message, searchable, found))


def index_short_messages(db: sqlite3.Connection) -> tuple[bool, int | None]:
    """Index messages of the queue for the time of a piece. Returns whether there are more, and the next one if it is so
    long that it is indexed in pieces."""
    until = time.monotonic() + PIECE_SECONDS
    while (message := newest_queued(db)) is not None:
        if is_long(db, message) or indexed_pieces(db, message):
            return True, message
        searchable = read_searchable(db, message)
        if searchable is not None:
            found = searchable.pieces()
            insert_pieces(db, searchable.session, searchable.seq, message, searchable.blocks, found)
        leave_queue(db, message)
        if time.monotonic() > until:
            return True, None
    return False, None


def _index_some(db: sqlite3.Connection, message: int, searchable: StoredText | None, found: Sequence[Piece]) -> bool:
    """Index the next pieces of a long message; False if there are no more. Another process may work on it too."""
    if not is_queued(db, message):
        return False
    left = found[indexed_pieces(db, message) :]
    count = pieces_at_once(left)
    if left:
        assert searchable is not None
        insert_pieces(db, searchable.session, searchable.seq, message, searchable.blocks, left[:count])
    if count < len(left):
        return True
    leave_queue(db, message)
    return False


def has_work(db: sqlite3.Connection) -> bool:
    """Whether anything is queued."""
    return db.execute("SELECT 1 FROM search_queue LIMIT 1").fetchone() is not None
