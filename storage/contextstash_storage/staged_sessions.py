"""Imports of whole sessions. One is stored in pieces, each a transaction of its own, under a reserved owner, whom no
reader is; the last piece makes the whole session visible."""

from __future__ import annotations

import asyncio
import os
import platform
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from contextstash_storage.append import PIECE_SIZE, Prepared, prepare, store_messages
from contextstash_storage.errors import StoreBusyError
from contextstash_storage.log import copy_record
from contextstash_storage.notes import acquire_lease, claim_sources, copy_note
from contextstash_storage.records import (
    Call,
    Copied,
    DeclaredVersion,
    EditRecord,
    Event,
    NewMessage,
    Note,
    Request,
    Session,
)
from contextstash_storage.sessions import DELETED_OWNER, STAGED_OWNER, insert_session, read_session, row_of
from contextstash_storage.transaction import Database, Tx

STAGING = "staging"
"""The lease of the process that imports."""

LEASE_SECONDS = 600.0
"""How long the lines of an import may take to come, as from a pipe, before it counts as abandoned."""

ITEMS_AT_ONCE = 200
"""Items that are read and prepared at a time, if they have no more text than CHARACTERS_AT_ONCE."""

CHARACTERS_AT_ONCE = 500_000

PAUSE_SECONDS = 0.025
"""How long the database is left to others between two pieces, of an import or of a deletion. SQLite has no queue: who
waits asks again every 1 to 25 ms in its first eighth of a second, and so meets the pause."""

Item = Prepared | EditRecord | Event | Call | DeclaredVersion | Request | Note


def read_items(items: Iterator[Copied]) -> deque[Item]:
    """The next items, ready to be stored; none at the end. Nothing of the database is needed or held."""
    read: deque[Item] = deque()
    characters = 0
    for item in items:
        if isinstance(item, NewMessage):
            read += prepare([item])
            characters += sum(len(text) for _, text in item.texts)
        else:
            read.append(item)
        if len(read) >= ITEMS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            break
    return read


@dataclass(slots=True)
class Staged:
    """An import that is under way: the session that it becomes, the row of its hidden one, and the position of the next
    message. `holder` is the id of that: by it, others can tell whether the process that imports still runs."""

    session: Session
    row: int = 0
    seq: int = 0
    holder: str = field(default_factory=lambda: f"{os.getpid()} {uuid.uuid4().hex} {platform.node()}")

    def begin(self, tx: Tx) -> bool:
        """Begin to store the session; False if it exists already."""
        if _is_there(tx, self.session.owner, self.session.session_id):
            return False
        insert_session(tx, self.session.model_copy(update={"owner": STAGED_OWNER, "session_id": self.holder}))
        self.row = row_of(tx, STAGED_OWNER, self.holder)
        acquire_lease(tx, self.row, STAGING, self.holder, LEASE_SECONDS)
        return True

    async def fill(self, database: Database, items: Iterator[Copied]) -> None:
        """Store the items, which another thread reads while no transaction is open."""
        while read := await asyncio.to_thread(read_items, items):
            while read:
                written = await database.write(lambda tx, read=read: self._write_piece(tx, read))  # type: ignore[misc]
                # Only now: the piece is committed, and cannot run again.
                self.seq += sum(isinstance(read.popleft(), Prepared) for _ in range(written))
                await asyncio.sleep(PAUSE_SECONDS)

    def _write_piece(self, tx: Tx, items: deque[Item]) -> int:
        """Store the first of these items, as many as a transaction takes; returns how many. Messages come in order and
        before all else. Raises StoreBusyError if the import has been given up for dead meanwhile."""
        self._renew(tx)
        messages, size = [], 0
        for item in items:
            if not isinstance(item, Prepared) or size > PIECE_SIZE:
                break
            messages.append(item)
            size += item.size
        if messages:
            store_messages(tx, self.row, self.session, self.seq, messages)
            return len(messages)
        for item in items:
            if isinstance(item, Note):
                copy_note(tx, self.row, item)
            elif not isinstance(item, Prepared):
                copy_record(tx, self.row, item)
        return len(items)

    def publish(self, tx: Tx) -> Session | None:
        """Make the session, which is stored to its end, visible; None if one of its id has come meanwhile."""
        self._renew(tx)
        owner, session_id = self.session.owner, self.session.session_id
        if _is_there(tx, owner, session_id):
            give_up(tx, self.row)
            return None
        tx.execute("DELETE FROM notes WHERE session = ? AND kind = 'lease'", (self.row,))
        claim_sources(tx, owner, self.row)
        text = "UPDATE sessions SET owner = ?, session_id = ? WHERE session = ?"
        tx.execute(text, (owner, session_id, self.row))
        return read_session(tx, owner, session_id)[1]

    def abandon(self, tx: Tx) -> None:
        """Hand over to the deletion what is stored so far, if it is not visible yet."""
        if _is_there(tx, STAGED_OWNER, self.holder):
            give_up(tx, self.row)

    def _renew(self, tx: Tx) -> None:
        if not _is_there(tx, STAGED_OWNER, self.holder):
            raise StoreBusyError(
                "The import took so long that another process removed it as abandoned; nothing was stored. Import it"
                " again."
            )
        acquire_lease(tx, self.row, STAGING, self.holder, LEASE_SECONDS)


def give_up(tx: Tx, row: int) -> None:
    """Hand a session over to the deletion, under a name that was never used. What its row said is overwritten."""
    tx.execute(
        "UPDATE sessions SET owner = ?, session_id = ?, agent = NULL, model = NULL, format = NULL, title = NULL,"
        " source = NULL, parent_session_id = NULL, counters = '{}', settings = '{}' WHERE session = ?",
        (DELETED_OWNER, uuid.uuid4().hex, row),
    )


def give_up_abandoned(tx: Tx) -> None:
    """Mark for deletion the incomplete imports of processes that have ended."""
    now = tx.clock()
    for row, holder, begins, ends in tx.rows(
        "SELECT sessions.session, session_id, begins, ends FROM sessions LEFT JOIN notes"
        " ON notes.session = sessions.session AND kind = 'lease' AND key = ? WHERE sessions.owner = ?",
        (STAGING, STAGED_OWNER),
    ):
        if begins is None or not begins <= now < ends or not _may_be_running(holder):
            give_up(tx, row)


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


def _is_there(tx: Tx, owner: str, session_id: str) -> bool:
    return bool(tx.rows("SELECT 1 FROM sessions WHERE owner = ? AND session_id = ?", (owner, session_id)))
