"""The embedded session store: one SQLite file, safely shared by several processes.

    store = await open_sqlite(Path("sessions.db"))

Open it once in a process: its threads and caches are shared by all sessions.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

from contextstash_storage.errors import StoreError
from contextstash_storage.hidden_sessions import PAUSE_SECONDS, PIECE_SECONDS
from contextstash_storage.records import LOCAL_OWNER
from contextstash_storage.sqlite import match
from contextstash_storage.sqlite.connection import (
    BUSY_SECONDS,
    Connection,
    SqliteRecording,
    close,
    connect,
    open_writer,
)
from contextstash_storage.sqlite.database_file import FindKey, no_key
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Result, Tx, TxWork, only

LOG_WAIT_MILLISECONDS = 100
"""How long truncating the log may wait for readers in one attempt: SQLite keeps the write lock meanwhile."""

LOG_SECONDS = 5.0
"""How long a deletion waits for readers of other processes until the log can be truncated. Ours read for some ms."""

MERGED_PAGES = 64
"""Pages of the search index, of 4 KB, that are merged between two looks at the clock."""

SMALL_FILE_BYTES = 8 * 2**20
"""A file up to this size is rewritten after a deletion, which takes less time than one piece may take."""


class SqliteDatabase(SqliteRecording):
    """One connection writes, one transaction after another; another reads, so that reading never waits for a commit."""

    def __init__(self, writer: Connection, reader: Connection) -> None:
        super().__init__(writer)
        self.reader = reader

    async def read(self, work: TxWork[Result]) -> Result:
        """What `work` returns; all its reads see the same state."""
        return await self.reader.read(work)

    async def close(self) -> None:
        """Close both connections. The writer is closed last: the last connection moves the log into the file, which a
        read-only one cannot do."""
        await close(self.reader, self.writer)

    async def forget(
        self, pieces: Callable[[TxWork[bool]], Awaitable[bool]], closing: asyncio.Event, had_words: bool
    ) -> bool:
        """Overwrite what removed rows leave: words in the search index and the unused part of pages; and cut the
        write-ahead log to nothing. FTS5 counts the pages that it writes, and deleted words are only read: a piece of a
        merge takes about 0.5 s of CPU time for each 10 MB of deleted text that stands together."""
        if had_words:
            await self.write(lambda tx: match.merge(tx, -MERGED_PAGES))
            if not await pieces(_merged_piece):
                return False
            await self.write(match.rewrite_terms)
        await self.writer.run(_rewrite_small_file)
        give_up = time.monotonic() + LOG_SECONDS
        while not closing.is_set():
            if await self.writer.run(truncate_log):
                return True
            if time.monotonic() > give_up:
                return False
            await asyncio.sleep(PAUSE_SECONDS)
        return False


def _merged_piece(tx: Tx) -> bool:
    """Merge the index for the time of a piece; False if it is all merged."""
    until = time.monotonic() + PIECE_SECONDS
    while time.monotonic() < until:
        before = only(tx.rows("SELECT total_changes()"))
        match.merge(tx, MERGED_PAGES)
        if only(tx.rows("SELECT total_changes()")) - before < 2:  # FTS5's own sign; the command itself is one change
            return False
    return True


def truncate_log(db: sqlite3.Connection) -> bool:
    """Move the write-ahead log into the file and cut it to nothing; False if readers of an older state are in the way.
    Most is moved before the write lock is taken."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    [usual] = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {LOG_WAIT_MILLISECONDS}")
    try:
        [busy, _, _] = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {usual}")
    return not busy


def _rewrite_small_file(db: sqlite3.Connection) -> None:
    """Rewrite a small file, which removes every copy that SQLite may have left in the unused part of a page, in indexes
    too. Free pages, which later messages fill, do not count."""
    names = ("page_count", "freelist_count", "page_size")
    pages, free, size = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in names)  # SQLCipher's is a text
    if (pages - free) * size <= SMALL_FILE_BYTES:
        db.execute("VACUUM")


class SqliteStore(SessionStore):
    """A SessionStore in one file."""

    database: SqliteDatabase


async def open_sqlite(
    path: Path, *, owner: str = LOCAL_OWNER, busy_seconds: float = BUSY_SECONDS, find_key: FindKey = no_key
) -> SqliteStore:
    """Open the database at `path`; it is created if it does not exist, readable only by its owner. The store is
    bound to the sessions of `owner`. A transaction waits `busy_seconds` for those of other processes. `find_key` is
    called on another thread, once.

    Raises StoreVersionError for one written by a newer contextstash, StoreError for one that cannot be used.
    """
    opening = asyncio.create_task(_open(path, owner, busy_seconds, cache(find_key)))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        with suppress(StoreError):
            await (await opening).close()
        raise


async def _open(path: Path, owner: str, busy_seconds: float, find_key: FindKey) -> SqliteStore:
    writer = await open_writer(path, find_key, busy_seconds)
    try:
        reader = await connect(path, find_key, read_only=True, busy_seconds=busy_seconds)
        store = SqliteStore(SqliteDatabase(writer, reader), owner)
        await store.continue_work()
    except BaseException:
        await close(writer)
        raise
    return store
