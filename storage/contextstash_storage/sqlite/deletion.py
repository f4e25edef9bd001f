"""Removes what remains of a deleted session from the files, piece by piece."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash_storage.errors import StoreError
from contextstash_storage.search.documents import Piece
from contextstash_storage.sqlite.connection import (
    AGAIN_SECONDS,
    PAUSE_SECONDS,
    PIECE_SECONDS,
    PieceWork,
    truncate_log,
)
from contextstash_storage.sqlite.database_file import driver_errors, primary_code
from contextstash_storage.sqlite.hidden_sessions import give_up_abandoned
from contextstash_storage.sqlite.rows import DELETED_OWNER, forget_body
from contextstash_storage.sqlite.search_index import (
    StoredText,
    indexed_pieces,
    is_long,
    merge_index,
    pieces_at_once,
    read_searchable,
    remove_pieces,
    rewrite_terms,
)

LOG_SECONDS = 5.0
"""How long a deletion waits for readers of other processes until the log can be truncated. Ours read for some ms."""

ROWS_AT_ONCE = 200

MERGED_PAGES = 64
"""Pages of the search index, of 4 KB, that are merged between two looks at the clock."""

SMALL_FILE_BYTES = 8 * 2**20
"""A file up to this size is rewritten after a deletion, which takes less time than one piece may take."""

_PARTS = (
    ("outputs", "seq"),
    ("edits", "edit_id"),
    ("events", "event_id"),
    ("calls", "call_id"),
    ("cached_summaries", "key"),
    ("leases", "purpose"),
    ("batches", "batch_id"),
    ("requests", "request"),
    ("declared_parts", "version"),
    ("dictionaries", "mark"),
)


class Deletion(PieceWork):
    """Removes what is marked as deleted from the files of one store. What could not be removed, because another process
    still reads the old state, is tried again in the background, and at the next opening of the database."""

    async def finish(self) -> bool:
        """Remove everything that is marked. False if some of it may still be in the files. Cancelling the caller does
        not stop it."""
        finished = await asyncio.shield(self.task(self._finished()))
        if not finished:
            self.finish_later(AGAIN_SECONDS)
        return finished

    def finish_later(self, seconds: float = 0.0) -> None:
        """Remove everything that is marked, in the background, until that is done; begin in `seconds`."""
        if not self.closing.is_set():
            self.task(self._until_finished(seconds))

    async def _until_finished(self, seconds: float) -> bool:
        await self.pause(seconds)
        while not self.closing.is_set() and not await self._finished():
            await self.pause(AGAIN_SECONDS)
        return not self.closing.is_set()

    async def _finished(self) -> bool:
        async with self.alone:
            try:
                return await self._all_taken_out()
            except StoreError:  # locked for too long, or the disk is full: the session is invisible all the same
                return False

    async def _all_taken_out(self) -> bool:
        await self.write(give_up_abandoned)
        if not await self._all_rows_removed():
            return False
        marks = await self.writer.read(_marks)
        if not marks:
            return True
        if any(indexed for _, indexed in marks):
            if not await self._index_merged():
                return False
            await self.write(rewrite_terms)
        async with self.lock:
            await self.writer.run(_rewrite_small_file)
        if not await self._log_truncated():
            return False
        # Only now: whoever opens the database after a crash sees by the marks what is still to be done.
        await self.write(lambda db: _remove_marks(db, marks))
        return True

    async def _index_merged(self) -> bool:
        """Merge the whole search index, after which no deleted word is left in it. FTS5 counts the pages that it
        writes, and deleted words are only read: a piece takes about 0.5 s of CPU time for each 10 MB of deleted text
        that stands together."""
        await self.write(lambda db: merge_index(db, -MERGED_PAGES))
        return await self.pieces(_merged_piece)

    async def _all_rows_removed(self) -> bool:
        """Remove the rows of everything that is marked; a message with very much text is prepared outside the
        transactions."""
        long: _LongText | None = None
        while not self.closing.is_set():
            more, message = await self.write(lambda db, long=long: _removed_piece(db, long))  # type: ignore[misc]
            if not more:
                return True
            if message is None:
                long = None
            elif long is None or long.message != message:
                found = await self.writer.run(lambda db, message=message: read_searchable(db, message))  # type: ignore[misc]
                long = None if found is None else _LongText(message, found, await asyncio.to_thread(_pieces, found))
            await asyncio.sleep(PAUSE_SECONDS)
        return False

    async def _log_truncated(self) -> bool:
        give_up = time.monotonic() + LOG_SECONDS
        while not self.closing.is_set():
            async with self.lock:
                if await self.writer.run(truncate_log):
                    return True
            if time.monotonic() > give_up:
                return False
            await asyncio.sleep(PAUSE_SECONDS)
        return False


@dataclass(frozen=True, slots=True)
class _LongText:
    """A message with very much text, and the pieces in which it is indexed; None if it is damaged."""

    message: int
    searchable: StoredText
    pieces: list[Piece] | None


def _pieces(searchable: StoredText) -> list[Piece] | None:
    """The pieces in which a message is indexed; None if its text cannot be read."""
    try:
        return searchable.pieces()
    except StoreError:
        return None


def _removed_piece(db: sqlite3.Connection, long: _LongText | None) -> tuple[bool, int | None]:
    """Remove some of the rows of what is marked. Returns whether there may be more, and the message that comes next if
    it is so long that it has to be prepared."""
    until = time.monotonic() + PIECE_SECONDS
    for (row,) in db.execute("SELECT session FROM sessions WHERE owner = ?", (DELETED_OWNER,)).fetchall():
        while (message := _first_message(db, row)) is not None:
            if not _forget_text(db, message, long):
                return True, message
            _remove_message(db, message)
            if time.monotonic() > until:
                return True, None
        while _remove_rows(db, row):
            if time.monotonic() > until:
                return True, None
    return False, None


def _first_message(db: sqlite3.Connection, row: int) -> int | None:
    found = db.execute("SELECT message FROM messages WHERE session = ? ORDER BY seq LIMIT 1", (row,)).fetchone()
    return None if found is None else int(found[0])


def _forget_text(db: sqlite3.Connection, message: int, long: _LongText | None) -> bool:
    """Remove a message's text from the index; False if some of it is left, or it has to be prepared first."""
    if long is not None and long.message == message and long.pieces is None:
        return _leave_text(db, message)
    if long is not None and long.message == message and long.pieces is not None:
        left = indexed_pieces(db, message)
        count = pieces_at_once(reversed(long.pieces[:left]))
        remove_pieces(db, long.searchable, long.pieces, count)
        return count >= left
    [count] = db.execute("SELECT count(*) FROM search_entries WHERE message = ?", (message,)).fetchone()
    if not count:
        return True
    if is_long(db, message):
        return False
    searchable = read_searchable(db, message)
    assert searchable is not None
    found = _pieces(searchable)
    if found is None:
        return _leave_text(db, message)
    db.execute("SAVEPOINT text")
    try:
        remove_pieces(db, searchable, found, count)
    except driver_errors() as error:
        if primary_code(error) != sqlite3.SQLITE_CORRUPT:
            raise
        db.execute("ROLLBACK TO text")
        _leave_text(db, message)
    finally:
        db.execute("RELEASE text")
    return True


def _leave_text(db: sqlite3.Connection, message: int) -> bool:
    """Leave the words of a damaged message in the index: without its text they cannot be removed, and all other
    deletions would wait for it. Its entries stay without a message, so that their numbers are not given to others."""
    db.execute("UPDATE search_entries SET message = 0, pair = NULL WHERE message = ?", (message,))
    return True


def _remove_message(db: sqlite3.Connection, message: int) -> None:
    """Remove a message whose text is forgotten, with what only it refers to."""
    forget_body(db, message)
    db.execute("DELETE FROM search_queue WHERE message = ?", (message,))
    db.execute("DELETE FROM messages WHERE message = ?", (message,))


def _remove_rows(db: sqlite3.Connection, row: int) -> bool:
    """Remove some of a session's other rows; False if it has none."""
    for table, key in _PARTS:
        removed = db.execute(
            f"DELETE FROM {table} WHERE session = ?1 AND {key} IN"
            f" (SELECT {key} FROM {table} WHERE session = ?1 LIMIT {ROWS_AT_ONCE})",
            (row,),
        )
        if removed.rowcount:
            return True
    return False


def _merged_piece(db: sqlite3.Connection) -> bool:
    """Merge the index for the time of a piece; False if it is all merged."""
    until = time.monotonic() + PIECE_SECONDS
    while merge_index(db, MERGED_PAGES):
        if time.monotonic() > until:
            return True
    return False


def _rewrite_small_file(db: sqlite3.Connection) -> None:
    """Rewrite a small file, which removes every copy that SQLite may have left in the unused part of a page, in indexes
    too."""
    if used_bytes(db) <= SMALL_FILE_BYTES:
        db.execute("VACUUM")


def used_bytes(db: sqlite3.Connection) -> int:
    """The bytes of the file without its free pages, which later messages fill."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)  # SQLCipher's is a text
    return (pages - free) * size


def _marks(db: sqlite3.Connection) -> list[tuple[str, bool]]:
    """The names of deleted sessions whose rows are removed, and whether any text of theirs was in the index."""
    return db.execute(
        "SELECT session_id, settings ->> '$.indexed' FROM sessions WHERE owner = ?", (DELETED_OWNER,)
    ).fetchall()


def _remove_marks(db: sqlite3.Connection, marks: Sequence[tuple[str, bool]]) -> None:
    db.executemany(
        "DELETE FROM sessions WHERE owner = ? AND session_id = ?", [(DELETED_OWNER, name) for name, _ in marks]
    )
