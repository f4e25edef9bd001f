"""Sessions that no reader sees: those being deleted, and those whose import is not complete.

Deleting or importing a long session takes many seconds, and a transaction of that length keeps every other process
waiting. Therefore both work in pieces on a session that belongs to a reserved owner; one small transaction, the first
of a deletion and the last of an import, makes the whole session invisible or visible at once.
"""

from __future__ import annotations

import json
import os
import platform
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from contextstash_storage.append import PIECE_SIZE, Prepared, prepare, store_messages
from contextstash_storage.errors import SessionNotFoundError, StoreBusyError
from contextstash_storage.log import copy_log
from contextstash_storage.notes import acquire_lease, note_deleted
from contextstash_storage.records import Call, Copied, DeclaredVersion, EditRecord, Event, NewMessage, Request, Session
from contextstash_storage.sessions import DELETED_OWNER, STAGED_OWNER, insert_session, read_session, row_of
from contextstash_storage.transaction import Tx, listed, only

# Deletions

PIECE_SECONDS = 0.03
"""For how long a piece works before it is committed. The commit can take twice as long, as the search index is written
then: together well below the 250 ms for which no transaction may keep others waiting (bench/write_lock.py)."""

ROWS_AT_ONCE = 200
"""Rows that are removed between two looks at the clock."""

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


def give_up(tx: Tx, row: int) -> None:
    """Hand a session over to the deletion, under a name that was never used. What its row said is overwritten."""
    text = "SELECT 1 FROM messages JOIN entries USING (message) WHERE session = ? LIMIT 1"
    indexed = json.dumps({"indexed": bool(tx.rows(text, (row,)))})
    tx.execute(
        "UPDATE sessions SET owner = ?, session_id = ?, agent = NULL, model = NULL, format = NULL, title = NULL,"
        " source = NULL, parent_session_id = NULL, counters = '{}', settings = ? WHERE session = ?",
        (DELETED_OWNER, uuid.uuid4().hex, indexed, row),
    )


def any_hidden(tx: Tx) -> bool:
    """Whether there is a session to delete, or one that is being imported."""
    return bool(tx.rows("SELECT 1 FROM sessions WHERE owner IN (?, ?) LIMIT 1", (DELETED_OWNER, STAGED_OWNER)))


def remove_some(tx: Tx, seconds: float) -> bool:
    """Remove rows of hidden sessions, for the time of a piece; returns whether there may be more."""
    until = time.monotonic() + seconds
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


def marks(tx: Tx) -> list[tuple[int, bool]]:
    """The deleted sessions whose rows are removed, and whether any text of theirs was in the index."""
    rows = tx.rows("SELECT session, settings FROM sessions WHERE owner = ?", (DELETED_OWNER,))
    return [(row, bool(json.loads(settings)["indexed"])) for row, settings in rows]


def remove_marks(tx: Tx, found: Sequence[tuple[int, bool]]) -> None:
    """Forget that there were these sessions."""
    text = f"DELETE FROM sessions WHERE owner = ? AND session IN {tx.numbers}"
    tx.execute(text, (DELETED_OWNER, listed(row for row, _ in found)))


# Imports

STAGING = "staging"
"""The lease of the process that imports."""

LEASE_SECONDS = 600.0
"""How long the lines of an import may take to come, as from a pipe, before it counts as abandoned."""

ITEMS_AT_ONCE = 200
"""Items that are read and prepared at a time, if they have no more text than CHARACTERS_AT_ONCE."""

CHARACTERS_AT_ONCE = 500_000

Item = Prepared | EditRecord | Event | Call | DeclaredVersion | Request


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
    """An import that is under way: the row of its hidden session, and the position of the next message."""

    row: int
    holder: str
    session: Session
    seq: int = 0

    def advance(self, written: Iterable[Item]) -> None:
        """Go on behind these items, now that they are committed."""
        self.seq += sum(isinstance(item, Prepared) for item in written)


def begin(tx: Tx, session: Session) -> Staged | None:
    """Begin to store a session; None if it exists already."""
    if _is_there(tx, session.owner, session.session_id):
        return None
    holder = f"{os.getpid()} {uuid.uuid4().hex} {platform.node()}"  # others can tell whether that process still runs
    insert_session(tx, session.model_copy(update={"owner": STAGED_OWNER, "session_id": holder}))
    row = row_of(tx, STAGED_OWNER, holder)
    acquire_lease(tx, row, STAGING, holder, LEASE_SECONDS)
    return Staged(row, holder, session)


def write_piece(tx: Tx, staged: Staged, items: deque[Item]) -> int:
    """Store the first of these items, as many as a transaction takes; returns how many. Messages come in order and
    before all else. Raises StoreBusyError if the import has been given up for dead meanwhile."""
    _renew(tx, staged)
    messages, size = [], 0
    for item in items:
        if not isinstance(item, Prepared) or size > PIECE_SIZE:
            break
        messages.append(item)
        size += item.size
    if messages:
        store_messages(tx, staged.row, staged.session, staged.seq, messages)
        return len(messages)
    copy_log(tx, staged.row, list(items))
    return len(items)


def publish(tx: Tx, staged: Staged) -> Session | None:
    """Make a session that is stored to its end visible; None if one of that id has come meanwhile."""
    _renew(tx, staged)
    session = staged.session
    if _is_there(tx, session.owner, session.session_id):
        give_up(tx, staged.row)
        return None
    tx.execute("DELETE FROM notes WHERE session = ? AND kind = 'lease'", (staged.row,))
    text = "UPDATE sessions SET owner = ?, session_id = ? WHERE session = ?"
    tx.execute(text, (session.owner, session.session_id, staged.row))
    return read_session(tx, session.owner, session.session_id)[1]


def abandon(tx: Tx, staged: Staged) -> None:
    """Hand over to the deletion what is stored so far, if it is not visible yet."""
    if _is_there(tx, STAGED_OWNER, staged.holder):
        give_up(tx, staged.row)


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


def _renew(tx: Tx, staged: Staged) -> None:
    if not _is_there(tx, STAGED_OWNER, staged.holder):
        raise StoreBusyError(
            "The import took so long that another process removed it as abandoned; nothing was stored. Import it again."
        )
    acquire_lease(tx, staged.row, STAGING, staged.holder, LEASE_SECONDS)
