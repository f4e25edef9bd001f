"""Sessions that no reader sees, as they belong to a reserved owner: one that is being imported has a lease, all others
are being deleted. Both are done in pieces, each a transaction of its own: one that takes seconds would keep every other
process waiting."""

from __future__ import annotations

import asyncio
import os
import platform
import time
import uuid
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contextstash_storage.append import PIECE_SIZE, Prepared, prepare, store_messages
from contextstash_storage.errors import SessionNotFoundError, StoreBusyError, StoreError
from contextstash_storage.log import copy_record
from contextstash_storage.messages import messages_before
from contextstash_storage.notes import acquire_lease, note_deleted, release_lease, renew_lease
from contextstash_storage.records import (
    Call,
    Copied,
    DeclaredVersion,
    EditRecord,
    Event,
    NewMessage,
    Request,
    Session,
)
from contextstash_storage.sessions import HIDDEN_OWNER, insert_session, read_session, row_of
from contextstash_storage.transaction import Database, Result, Tx, TxWork

STAGING = "staging"
"""The lease of the process that imports."""

LEASE_SECONDS = 600.0
"""How long the lines of an import may take to come, as from a pipe, before it counts as abandoned."""

ITEMS_AT_ONCE = 200
"""Items of a piece of an import at most: it ends earlier if its messages fill a transaction."""

PAUSE_SECONDS = 0.025
"""How long the database is left to others between two pieces, of an import or of a deletion. SQLite has no queue: who
waits asks again every 1 to 25 ms in its first eighth of a second, and so meets the pause."""

Item = Prepared | EditRecord | Event | Call | DeclaredVersion | Request


def read_piece(items: Iterator[Copied]) -> list[Item]:
    """The next items, ready to be stored in one transaction; none at the end. Nothing of the database is needed."""
    read: list[Item] = []
    size = 0
    for item in items:
        if isinstance(item, NewMessage):
            [prepared] = prepare([item])
            read.append(prepared)
            size += prepared.size
        else:
            read.append(item)
        if len(read) >= ITEMS_AT_ONCE or size >= PIECE_SIZE:
            break
    return read


@dataclass(slots=True)
class Staged:
    """An import that is under way: the session that it becomes, the row of its hidden one, and the position of the next
    message. `holder` holds its lease: by it, others can tell whether the process that imports still runs."""

    session: Session
    row: int = 0
    seq: int = 0
    holder: str = field(default_factory=lambda: f"{os.getpid()} {uuid.uuid4().hex} {platform.node()}")

    def begin(self, tx: Tx) -> bool:
        """Begin to store the session; False if it exists already."""
        if _is_there(tx, self.session):
            return False
        insert_session(tx, self.session.model_copy(update={"owner": HIDDEN_OWNER, "session_id": self.holder}))
        self.row = row_of(tx, HIDDEN_OWNER, self.holder)
        acquire_lease(tx, self.row, STAGING, self.holder, LEASE_SECONDS)
        return True

    async def fill(self, database: Database, items: Iterator[Copied]) -> None:
        """Store the items, which another thread reads while no transaction is open."""
        while read := await asyncio.to_thread(read_piece, items):
            # Counted when the piece is committed, and cannot run again.
            self.seq += await database.write(partial(self._write_piece, items=read))
            await asyncio.sleep(PAUSE_SECONDS)

    def _write_piece(self, tx: Tx, items: Sequence[Item]) -> int:
        """Store some items, of which messages come first; returns how many messages they are. Raises StoreBusyError if
        the import has been given up for dead meanwhile."""
        self._renew(tx)
        messages = [each for each in items if isinstance(each, Prepared)]
        store_messages(tx, self.row, self.session, self.seq, messages)
        for item in items:
            if not isinstance(item, Prepared):
                copy_record(tx, self.row, item, self._reply_of(tx, item))
        return len(messages)

    def _reply_of(self, tx: Tx, item: Item) -> str | None:
        """The provider's id of the reply of an agent's model call."""
        if not isinstance(item, Call) or item.purpose != "agent":
            return None
        name = self.session.session_id
        return next((message.group for message in messages_before(tx, self.row, name, item.request_seq + 2, 1)), None)

    def publish(self, tx: Tx) -> Session | None:
        """Make the session, which is stored to its end, visible; None if one of its id has come meanwhile."""
        self._renew(tx)
        self.abandon(tx)
        if _is_there(tx, self.session):
            return None
        text = "UPDATE sessions SET owner = ?, session_id = ? WHERE session = ?"
        tx.execute(text, (self.session.owner, self.session.session_id, self.row))
        return read_session(tx, self.session.owner, self.session.session_id)[1]

    def abandon(self, tx: Tx) -> None:
        """Leave what is stored so far to the deletion, if it is not visible yet."""
        release_lease(tx, self.row, STAGING, self.holder)

    def _renew(self, tx: Tx) -> None:
        if not renew_lease(tx, self.row, STAGING, self.holder, LEASE_SECONDS):
            raise StoreBusyError(
                "The import took so long that another process removed it as abandoned; nothing was stored. Import it"
                " again."
            )


def _is_there(tx: Tx, session: Session) -> bool:
    text = "SELECT 1 FROM sessions WHERE owner = ? AND session_id = ?"
    return bool(tx.rows(text, (session.owner, session.session_id)))


PIECE_SECONDS = 0.03
"""For how long a piece works before it is committed. The commit can take twice as long, as the search index is written
then: together well below the 250 ms for which no transaction may keep others waiting."""

ROWS_AT_ONCE = 200
"""Rows that are removed between two looks at the clock."""

AGAIN_SECONDS = 5.0
"""After how long a deletion is tried again if the database was locked, the disk full or an older state still read."""

_PARTS = {
    "notes": "note", "entries": "entry", "segments": "segment", "keys": "key", "outputs": "output", "log": "entry"
}  # fmt: skip
"""The tables of what a session has, and the numbers of their rows. Notes come first: without its lease, an import that
was given up for dead cannot go on."""


def hide(tx: Tx, owner: str, session_ids: Sequence[str]) -> None:
    """Make sessions invisible before they are deleted, under names that were never used: the first, and those of the
    others that are there. What their rows said is overwritten. Raises SessionNotFoundError."""
    for place, session_id in enumerate(session_ids):
        with suppress(*([SessionNotFoundError] if place else [])):
            row, _ = read_session(tx, owner, session_id, locked=True)
            note_deleted(tx, owner, session_id, row)
            text = "UPDATE sessions SET parent_session_id = NULL WHERE owner = ? AND parent_session_id = ?"
            tx.execute(text, (owner, session_id))
            tx.execute("DELETE FROM notes WHERE session = ? AND kind IN ('cursor', 'lease', 'proxied')", (row,))
            tx.execute(
                "UPDATE sessions SET owner = ?, session_id = ?, agent = NULL, model = NULL, format = NULL,"
                " title = NULL, source = NULL, parent_session_id = NULL, counters = '{}', settings = '{}'"
                " WHERE session = ?",
                (HIDDEN_OWNER, uuid.uuid4().hex, row),
            )


def any_hidden(tx: Tx) -> bool:
    """Whether there is a session to delete, or one that is being imported."""
    return bool(tx.rows("SELECT 1 FROM sessions WHERE owner = ? LIMIT 1", (HIDDEN_OWNER,)))


def _to_remove(tx: Tx) -> list[tuple[int, str, int]]:
    """The sessions to delete: their rows, their names, and how many entries the index has for them. They are hidden,
    and no running process imports them."""
    now = tx.clock()
    rows = tx.rows(
        "SELECT sessions.session, session_id, entry_count, begins, ends FROM sessions LEFT JOIN notes"
        " ON notes.session = sessions.session AND kind = 'lease' WHERE sessions.owner = ?",
        (HIDDEN_OWNER,),
    )
    return [
        (row, name, entries)
        for row, name, entries, begins, ends in rows
        if begins is None or not begins <= now < ends or not _may_be_running(name)
    ]


def _may_be_running(holder: str) -> bool:
    """Whether the process of a holder may still run; its lease ends soon in any case."""
    number, _, node = holder.split(" ", 2)
    if os.name != "posix" or node != platform.node():  # on Windows, asking for a process by os.kill would end it
        return True
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _remove_some(tx: Tx) -> bool:
    """Remove rows of hidden sessions, for the time of a piece; returns whether there may be more."""
    until = time.monotonic() + PIECE_SECONDS
    for row, _, _ in _to_remove(tx):
        while any(_remove_rows(tx, row, *part) for part in _PARTS.items()):
            if time.monotonic() > until:
                return True
    return False


def _remove_rows(tx: Tx, row: int, table: str, number: str) -> bool:
    """Remove some of a session's rows in a table; False if it has none. The words of an entry stay in the index's
    pages, marked as deleted, until these are merged."""
    rows = tx.rows(f"SELECT {number} FROM {table} WHERE session = ? LIMIT {ROWS_AT_ONCE}", (row,))
    if table == "entries":
        tx.many("DELETE FROM words WHERE rowid = ?", rows)
    tx.many(f"DELETE FROM {table} WHERE {number} = ?", rows)
    return bool(rows)


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
        # Read before the pieces: the rows of a session that is hidden while these work may still be there after them.
        marks = await self._database.read(_to_remove)
        if not await self._pieces(_remove_some):
            return False
        had_words = any(count for *_, count in marks)
        if marks and not await self._database.forget(self._pieces, self._closing, had_words):
            return False
        if marks:
            # Only now: whoever opens the database after a crash sees by the rows what is still to be done.
            # With the id, which is random: another process may have removed the row, and its number is used again.
            text = "DELETE FROM sessions WHERE owner = ? AND session = ? AND session_id = ?"
            gone = [(HIDDEN_OWNER, row, session_id) for row, session_id, _ in marks]
            await self._database.write(lambda tx: tx.many(text, gone))
        return True

    async def _pieces(self, piece: TxWork[bool]) -> bool:
        """Do piece after piece until one says that it was the last; False if the work is to stop before that."""
        while not self._closing.is_set():
            if not await self._database.write(piece):
                return True
            await asyncio.sleep(PAUSE_SECONDS)
        return False
