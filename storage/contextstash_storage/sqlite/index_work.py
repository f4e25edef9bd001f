"""Fills the search index in the background, piece by piece: after an upgrade, and for messages with very much text."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from contextstash_storage.errors import StoreError
from contextstash_storage.search.documents import Piece
from contextstash_storage.sqlite.connection import Connection
from contextstash_storage.sqlite.search_index import (
    Searchable,
    indexed_pieces,
    insert_pieces,
    is_long,
    is_queued,
    leave_queue,
    newest_queued,
    pieces_at_once,
    read_searchable,
)

PIECE_SECONDS = 0.03
"""For how long a transaction adds to the index before it is committed; the commit can take as long again."""

PAUSE_SECONDS = 0.025
"""How long the write lock is left to others between two transactions, see deletion.PAUSE_SECONDS."""

AGAIN_SECONDS = 5.0
"""After how long it is tried again if the database was locked or the disk full."""

MAX_WAIT_SECONDS = 2.0
"""How long recording waits until a very long message can be found. It is stored by then, and a search says that some of
it is not indexed yet."""

ROWS_AT_ONCE = 100

FIRST_PAGE = 11
"""The rows before it of an FTS5 table's data describe the index, and FTS5 reads them even to drop the table."""

Result = TypeVar("Result")


class IndexWork:
    """Indexes what is queued, newest first. A killed process leaves the rest to the next opening."""

    def __init__(self, writer: Connection, lock: asyncio.Lock) -> None:
        self._writer = writer
        self._lock = lock
        self._alone = asyncio.Lock()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Index everything that is queued, in the background."""
        self._task(self._until_done())

    async def wait(self) -> None:
        """Index what is queued; return after MAX_WAIT_SECONDS at the latest, while the rest goes on."""
        if not self._closing.is_set():
            await asyncio.wait([self._task(self._until_done())], timeout=MAX_WAIT_SECONDS)

    async def close(self) -> None:
        """Stop after the piece that is being worked on."""
        self._closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until_done(self) -> None:
        async with self._alone:
            while not self._closing.is_set():
                try:
                    await self._all_indexed()
                    return
                except StoreError:  # locked for too long, or the disk is full: the queue is durable
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._closing.wait(), AGAIN_SECONDS)

    async def _all_indexed(self) -> None:
        while not self._closing.is_set():
            more, large = await self._write(index_short_messages)
            if large is not None:
                await self._index_long(large)
            elif not more:
                break
            await asyncio.sleep(PAUSE_SECONDS)
        while not self._closing.is_set():
            if not await self._write(remove_former_index):
                break
            await asyncio.sleep(PAUSE_SECONDS)

    async def _index_long(self, message: int) -> None:
        searchable = await self._writer.run(lambda db: read_searchable(db, message))
        found = [] if searchable is None else await asyncio.to_thread(searchable.pieces)
        while not self._closing.is_set():
            if not await self._write(lambda db: _index_some(db, message, searchable, found)):
                break
            await asyncio.sleep(PAUSE_SECONDS)

    async def _write(self, work: Callable[[sqlite3.Connection], Result]) -> Result:
        async with self._lock:
            return await self._writer.write(work)


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


def _index_some(db: sqlite3.Connection, message: int, searchable: Searchable | None, found: Sequence[Piece]) -> bool:
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
    """Whether anything is queued, or the former index is still there."""
    queued = db.execute("SELECT 1 FROM search_queue LIMIT 1").fetchone()
    return queued is not None or _has_former_index(db)


def _has_former_index(db: sqlite3.Connection) -> bool:
    return db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'search_index'").fetchone() is not None


def remove_former_index(db: sqlite3.Connection) -> bool:
    """Remove some of the index of former versions; False if it is gone."""
    if not _has_former_index(db):
        return False
    until = time.monotonic() + PIECE_SECONDS
    rows = (("data", "id", f"id >= {FIRST_PAGE}"), ("docsize", "id", "true"), ("idx", "segid, term", "true"))
    for table, key, some in rows:
        removal = (
            f"DELETE FROM search_index_{table} WHERE ({key}) IN"
            f" (SELECT {key} FROM search_index_{table} WHERE {some} LIMIT {ROWS_AT_ONCE})"
        )
        while db.execute(removal).rowcount:
            if time.monotonic() > until:
                return True
    db.execute("DROP TABLE search_index")
    return False
