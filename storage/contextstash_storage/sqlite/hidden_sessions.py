"""Sessions that no reader sees: those being deleted, and those whose import is not complete.

Deleting or importing a long session takes many seconds, and a transaction of that length keeps every other process
waiting. Therefore both work in pieces on a session that belongs to a reserved owner; one small transaction, the first
of a deletion and the last of an import, makes the whole session invisible or visible at once.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import uuid

from contextstash_storage.sql.requests import note_deleted
from contextstash_storage.sqlite.connection import run, session_row
from contextstash_storage.sqlite.leases import LIVE, clock
from contextstash_storage.sqlite.rows import DELETED_OWNER, STAGED_OWNER

STAGING = "staging"
"""The lease of the process that imports."""


def hide(db: sqlite3.Connection, owner: str, session_id: str) -> None:
    """Make a session invisible before it is deleted. Raises SessionNotFoundError."""
    row, _ = session_row(db, owner, session_id)
    run(db, note_deleted(owner, session_id, (row,)))
    db.execute(
        "UPDATE sessions SET parent_session_id = NULL WHERE owner = ? AND parent_session_id = ?", (owner, session_id)
    )
    db.execute("DELETE FROM cursors WHERE session = ?", (row,))
    give_up(db, row)


def give_up(db: sqlite3.Connection, row: int) -> None:
    """Hand a session over to the deletion, under a name that was never used. What its row said is overwritten."""
    db.execute(
        "UPDATE sessions SET owner = ?, session_id = ?, agent = NULL, model = NULL, format = NULL, title = NULL,"
        " source = NULL, parent_session_id = NULL, counters = '{}', settings = json_object('indexed', EXISTS"
        " (SELECT 1 FROM messages JOIN search_entries USING (message) WHERE messages.session = sessions.session))"
        " WHERE session = ?",
        (DELETED_OWNER, uuid.uuid4().hex, row),
    )


def new_holder() -> str:
    """A name for an import of this process, by which others can tell whether it still runs."""
    return f"{os.getpid()} {uuid.uuid4().hex} {platform.node()}"


def give_up_abandoned(db: sqlite3.Connection) -> None:
    """Mark for deletion the incomplete imports of processes that have ended."""
    staged = db.execute(
        f"SELECT session, CASE WHEN {LIVE} THEN holder END FROM sessions LEFT JOIN leases USING (session)"
        " WHERE owner = :owner AND (purpose IS NULL OR purpose = :purpose)",
        {"now": clock(), "owner": STAGED_OWNER, "purpose": STAGING},
    ).fetchall()
    for row, holder in staged:
        if holder is None or not _may_be_running(holder):
            give_up(db, row)


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


def any_hidden(db: sqlite3.Connection) -> bool:
    """Whether there is a session to delete, or one that is being imported."""
    found = db.execute("SELECT 1 FROM sessions WHERE owner IN (?, ?) LIMIT 1", (DELETED_OWNER, STAGED_OWNER))
    return found.fetchone() is not None
