"""Where the body of a message is: in its row, or if it is large in a table of its own."""

from __future__ import annotations

import sqlite3

LARGE_BODY = 1_000
"""Bytes of a packed body from which it is stored in a table of its own: a quarter of a page, so that the others leave
only small gaps at the end of pages."""

BODY = (
    "CASE WHEN length(messages.body) THEN messages.body"
    " ELSE (SELECT content FROM large_bodies WHERE large_bodies.message = messages.message) END"
)
"""The stored body of a message."""


def insert_large(db: sqlite3.Connection, message: int, body: bytes) -> None:
    """Store a large body of a message."""
    db.execute("INSERT INTO large_bodies (message, content) VALUES (?, ?)", (message, body))
