"""Reads rows of the database: the time of a message, where its body is, and whether a session is seen."""

from __future__ import annotations

import sqlite3

from contextstash_storage.codec.record_json import to_json
from contextstash_storage.records import Counters, Session
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Statement, Steps

STORED_TIME = "ifnull(messages.created, messages.created_at)"
"""What `time_of` reads of a message."""

TIME_TEXT = (
    "CASE WHEN created IS NULL THEN created_at ELSE"
    " strftime('%Y-%m-%dT%H:%M:%S', (created - (created % 1000000 + 1000000) % 1000000) / 1000000, 'unixepoch')"
    " || iif(created % 1000000, printf('.%06d', (created % 1000000 + 1000000) % 1000000), '') || '+00:00' END"
)
"""The same as the text that datetime.isoformat() writes, which can be compared with those of sessions."""

DELETED_OWNER = "\x1fdeleted"
"""The owner of sessions that are being deleted. No user's name contains a control character."""

STAGED_OWNER = "\x1fstaged"
"""The owner of sessions that are being imported."""

IS_SEEN = f"owner NOT IN ('{DELETED_OWNER}', '{STAGED_OWNER}')"

LARGE_BODY = 1_000
"""Bytes of a packed body from which it is stored in a table of its own: a quarter of a page, so that the others leave
only small gaps at the end of pages."""

BODY = (
    "CASE WHEN length(messages.body) THEN messages.body"
    " ELSE (SELECT content FROM large_bodies WHERE large_bodies.message = messages.message) END"
)
"""The stored body of a message."""


def blobs_of(db: sqlite3.Connection, message: int) -> list[tuple[str, bytes]]:
    """Path and content of a message's large strings, in their order."""
    return db.execute(
        "SELECT path, content FROM message_blobs JOIN blobs USING (blob) WHERE message = ? ORDER BY number", (message,)
    ).fetchall()


def forget_body(db: sqlite3.Connection, message: int) -> None:
    """Delete what is stored of a message's body beside its row, and the large strings that only it refers to."""
    held = db.execute("DELETE FROM message_blobs WHERE message = ? RETURNING blob", (message,)).fetchall()
    db.executemany(
        "DELETE FROM blobs WHERE blob = ?1 AND NOT EXISTS (SELECT 1 FROM message_blobs WHERE blob = ?1)", held
    )
    db.execute("DELETE FROM large_bodies WHERE message = ?", (message,))


def store_counters(key: Key, session: Session, counters: Counters) -> Steps[Session]:
    """Store a session's counters and that it was changed now; returns the changed session."""
    updated = now()
    text = "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?"
    yield Statement(text, (to_json(counters), updated.isoformat(), *key))
    return session.model_copy(update={"counters": counters, "updated_at": updated})


def insert_large(db: sqlite3.Connection, message: int, body: bytes) -> None:
    """Store a large body of a message."""
    db.execute("INSERT INTO large_bodies (message, content) VALUES (?, ?)", (message, body))
