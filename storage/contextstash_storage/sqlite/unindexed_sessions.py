"""Old sessions that are taken out of the search index, which is a third of a database, and brought back into it.

`sessions.unindexed` is how many of a session's messages have been taken out, in their order, or NULL. Then their bodies
are packed (see packs.py). The first message that is appended, or a search in the session alone, has all of it indexed
again; what is packed stays so.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence

from contextstash_storage.sqlite.rows import DELETED_OWNER

_IN_WORK = "unindexed < (counters ->> '$.messages')"


def take_out(db: sqlite3.Connection, owner: str, session_ids: Sequence[str]) -> int:
    """Mark sessions, so that the deletion takes their texts out of the index; returns how many had not been marked."""
    marked = 0
    for session_id in session_ids:
        changed = db.execute(
            "UPDATE sessions SET unindexed = 0 WHERE owner = ? AND session_id = ? AND unindexed IS NULL"
            " RETURNING session",
            (owner, session_id),
        ).fetchall()
        for (row,) in changed:
            queued = "DELETE FROM search_queue WHERE message IN (SELECT message FROM messages WHERE session = ?)"
            db.execute(queued, (row,))
            marked += 1
    return marked


def is_in_work(db: sqlite3.Connection) -> bool:
    """Whether a session is marked whose texts are not all taken out, or whose bodies are not all packed."""
    left = "unindexed IS NOT NULL AND min(unindexed, packed) < (counters ->> '$.messages')"
    return db.execute(f"SELECT 1 FROM sessions WHERE {left} LIMIT 1").fetchone() is not None


def next_messages(db: sqlite3.Connection) -> Iterator[int]:
    """The messages whose texts are to be taken out. Asking for the next one says that the one before is done; after the
    last one of a session the deletion is told to remove the words from the files."""
    for row, place in db.execute(f"SELECT session, unindexed FROM sessions WHERE {_IN_WORK}").fetchall():
        of_place = "SELECT message FROM messages WHERE session = ? AND seq = ?"
        while (found := db.execute(of_place, (row, place)).fetchone()) is not None:
            yield found[0]
            place += 1
            db.execute("UPDATE sessions SET unindexed = ? WHERE session = ?", (place, row))
        db.execute("UPDATE sessions SET unindexed = max(?, counters ->> '$.messages') WHERE session = ?", (place, row))
        leave_mark(db)


def leave_mark(db: sqlite3.Connection) -> None:
    """Have the deletion remove the words that are no longer in the index from the files."""
    db.execute(
        "INSERT INTO sessions (session_id, owner, created_at, updated_at, counters, settings)"
        " VALUES (?, ?, '', '', '{}', json_object('indexed', 1))",
        (uuid.uuid4().hex, DELETED_OWNER),
    )


def index_again(db: sqlite3.Connection, row: int) -> bool:
    """Queue a session's messages if they were taken out of the index."""
    known = "UPDATE sessions SET unindexed = NULL WHERE session = ? AND unindexed IS NOT NULL"
    if not db.execute(known, (row,)).rowcount:
        return False
    db.execute(
        "INSERT OR IGNORE INTO search_queue SELECT message FROM messages WHERE session = ? AND search_text IS NOT NULL",
        (row,),
    )
    return True
