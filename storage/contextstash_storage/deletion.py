"""Deletions. One small transaction makes sessions invisible; their rows are then removed in pieces, each a transaction
of its own, as one that takes seconds would keep every other process waiting; and the database overwrites what these
leave. The rows of a session that is being deleted belong to a reserved owner, whom no reader is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from typing import Any

from contextstash_storage.errors import SessionNotFoundError, StoreError
from contextstash_storage.notes import note_deleted
from contextstash_storage.sessions import DELETED_OWNER, STAGED_OWNER, read_session
from contextstash_storage.staged_sessions import PAUSE_SECONDS, give_up, give_up_abandoned
from contextstash_storage.transaction import Database, Result, Tx, TxWork, only

PIECE_SECONDS = 0.03
"""For how long a piece works before it is committed. The commit can take twice as long, as the search index is written
then: together well below the 250 ms for which no transaction may keep others waiting (bench/write_lock.py)."""

ROWS_AT_ONCE = 200
"""Rows that are removed between two looks at the clock."""

AGAIN_SECONDS = 5.0
"""After how long a deletion is tried again if the database was locked, the disk full or an older state still read."""

_PARTS = {"bodies": "body", "outputs": "output", "log": "entry", "notes": "note"}
"""The tables of what a session has beside its messages, and the numbers of their rows."""


def hide(tx: Tx, owner: str, session_ids: Sequence[str]) -> None:
    """Make sessions invisible before they are deleted: the first, and those of the others that are there. Raises
    SessionNotFoundError."""
    for place, session_id in enumerate(session_ids):
        with suppress(*([SessionNotFoundError] if place else [])):
            row, _ = read_session(tx, owner, session_id, locked=True)
            note_deleted(tx, owner, session_id, row)
            text = "UPDATE sessions SET parent_session_id = NULL WHERE owner = ? AND parent_session_id = ?"
            tx.execute(text, (owner, session_id))
            tx.execute("DELETE FROM notes WHERE session = ? AND kind IN ('cursor', 'lease', 'proxied')", (row,))
            give_up(tx, row)


def any_hidden(tx: Tx) -> bool:
    """Whether there is a session to delete, or one that is being imported."""
    return bool(tx.rows("SELECT 1 FROM sessions WHERE owner IN (?, ?) LIMIT 1", (DELETED_OWNER, STAGED_OWNER)))


def _remove_some(tx: Tx) -> bool:
    """Remove rows of hidden sessions, for the time of a piece; returns whether there may be more."""
    until = time.monotonic() + PIECE_SECONDS
    for (row,) in tx.rows("SELECT session FROM sessions WHERE owner = ?", (DELETED_OWNER,)):
        while _remove_messages(tx, row) or any(_remove_rows(tx, row, *part) for part in _PARTS.items()):
            if time.monotonic() > until:
                return True
    return False


def _remove_messages(tx: Tx, row: int) -> bool:
    """Remove some rows of the index for a session's first message, or the message; False if it has none. The words stay
    in the index's pages, marked as deleted, until these are merged."""
    message = only(tx.rows("SELECT message FROM messages WHERE session = ? ORDER BY seq LIMIT 1", (row,)))
    if message is None:
        return False
    rows = tx.rows(f"SELECT entry FROM entries WHERE message = ? LIMIT {ROWS_AT_ONCE}", (message,))
    tx.many("DELETE FROM words WHERE rowid = ?", rows)
    tx.many("DELETE FROM entries WHERE entry = ?", rows)
    if len(rows) < ROWS_AT_ONCE:
        tx.execute("DELETE FROM messages WHERE message = ?", (message,))
    return True


def _remove_rows(tx: Tx, row: int, table: str, number: str) -> bool:
    """Remove some of a session's other rows; False if it has none."""
    some = f"SELECT {number} FROM {table} WHERE session = ? LIMIT {ROWS_AT_ONCE}"
    return tx.execute(f"DELETE FROM {table} WHERE {number} IN ({some})", (row,)) > 0


class Deletions:
    """The deletions of one open database. What a killed process leaves is continued when it is opened again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._one_at_a_time = asyncio.Lock()
        self._closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Stop after the piece that is being worked on."""
        self._closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def finish(self) -> bool:
        """Remove everything that is hidden. False if some of it may still be in the files: it is tried again then.
        Cancelling the caller does not stop it."""
        finished = await asyncio.shield(self._task(self._removed()))
        if not finished:
            self.finish_later(AGAIN_SECONDS)
        return finished

    def finish_later(self, seconds: float = 0.0) -> None:
        """Remove everything that is hidden until that is done; begin in `seconds`."""
        if not self._closing.is_set():
            self._task(self._until_removed(seconds))

    def _task(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin work that `close` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _until_removed(self, seconds: float) -> None:
        while not self._closing.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), seconds)
            if await self._removed():
                return
            seconds = AGAIN_SECONDS

    async def _removed(self) -> bool:
        async with self._one_at_a_time:
            try:
                return await self._all_removed()
            except StoreError:  # locked for too long, or the disk is full: the session is invisible all the same
                return False

    async def _all_removed(self) -> bool:
        await self._database.write(give_up_abandoned)
        # Read before the pieces: the rows of a session that is hidden while these work may still be there after them.
        text = "SELECT session, session_id, entry_count FROM sessions WHERE owner = ?"
        marks = await self._database.read(lambda tx: tx.rows(text, (DELETED_OWNER,)))
        if not await self._pieces(_remove_some):
            return False
        had_words = any(count for *_, count in marks)
        if marks and not await self._database.forget(self._pieces, self._closing, had_words):
            return False
        if marks:
            # Only now: whoever opens the database after a crash sees by the rows what is still to be done.
            # With the id, which is random: another process may have removed the row, and its number is used again.
            text = "DELETE FROM sessions WHERE owner = ? AND session = ? AND session_id = ?"
            gone = [(DELETED_OWNER, row, session_id) for row, session_id, _ in marks]
            await self._database.write(lambda tx: tx.many(text, gone))
        return True

    async def _pieces(self, piece: TxWork[bool]) -> bool:
        """Do piece after piece until one says that it was the last; False if the work is to stop before that."""
        while not self._closing.is_set():
            if not await self._database.write(piece):
                return True
            await asyncio.sleep(PAUSE_SECONDS)
        return False
