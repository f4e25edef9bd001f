"""Removes what remains of a deleted session from the files, piece by piece."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence

from contextstash_storage.errors import StoreError
from contextstash_storage.sqlite.connection import (
    AGAIN_SECONDS,
    PAUSE_SECONDS,
    PIECE_SECONDS,
    PieceWork,
    truncate_log,
)
from contextstash_storage.sqlite.hidden_sessions import give_up_abandoned
from contextstash_storage.sqlite.rows import DELETED_OWNER
from contextstash_storage.sqlite.search_index import merge_index, remove_pieces, rewrite_terms

LOG_SECONDS = 5.0
"""How long a deletion waits for readers of other processes until the log can be truncated. Ours read for some ms."""

ROWS_AT_ONCE = 200

PIECES_AT_ONCE = 200
"""Rows of the search index that are removed between two looks at the clock."""

MERGED_PAGES = 64
"""Pages of the search index, of 4 KB, that are merged between two looks at the clock."""

SMALL_FILE_BYTES = 8 * 2**20
"""A file up to this size is rewritten after a deletion, which takes less time than one piece may take."""

_PARTS = (
    ("bodies", "first_seq"),
    ("outputs", "seq"),
    ("edits", "edit_id"),
    ("events", "event_id"),
    ("calls", "call_id"),
    ("cached_summaries", "key"),
    ("leases", "purpose"),
    ("batches", "batch_id"),
    ("requests", "request"),
    ("declared_parts", "version"),
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
        if not await self.pieces(_removed_piece):
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


def _removed_piece(db: sqlite3.Connection) -> bool:
    """Remove rows of what is marked, for the time of a piece; returns whether there may be more."""
    until = time.monotonic() + PIECE_SECONDS
    for (row,) in db.execute("SELECT session FROM sessions WHERE owner = ?", (DELETED_OWNER,)).fetchall():
        while (message := _first_message(db, row)) is not None:
            if not remove_pieces(db, message, PIECES_AT_ONCE):
                db.execute("DELETE FROM search_queue WHERE message = ?", (message,))
                db.execute("DELETE FROM messages WHERE message = ?", (message,))
            if time.monotonic() > until:
                return True
        while _remove_rows(db, row):
            if time.monotonic() > until:
                return True
    return False


def _first_message(db: sqlite3.Connection, row: int) -> int | None:
    found = db.execute("SELECT message FROM messages WHERE session = ? ORDER BY seq LIMIT 1", (row,)).fetchone()
    return None if found is None else int(found[0])


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
