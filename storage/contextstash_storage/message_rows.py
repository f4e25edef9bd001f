"""The rows of messages with their large strings, and the records made of them."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contextstash_storage.records import Message
from contextstash_storage.rows import message_of

FEW = 16
"""Up to so many messages are made where their rows are read; of more only the rows, which takes a tenth of the time:
others wait for the one connection that reads."""

_COLUMNS = "message, seq, key, derived, created_at"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows of messages in order, and their large strings by message; without bodies neither."""

    session_id: str
    rows: Sequence[tuple[Any, ...]]
    blobs: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    bodies: bool = True

    def messages(self) -> list[Message]:
        """The messages of these rows."""
        return [self._message(*row) for row in self.rows]

    def _message(self, number: int, seq: int, key: str | None, derived: str, created: str, body: bytes) -> Message:
        stored = (body, self.blobs.get(number, [])) if self.bodies else None
        return message_of(self.session_id, (seq, key, derived, created), stored)


def rows_between(
    db: sqlite3.Connection, session: int, session_id: str, first: int, last: int, *, bodies: bool
) -> MessageRows:
    """The rows of the messages `first` to `last` of a session."""
    return _rows(db, session_id, "session = ? AND seq BETWEEN ? AND ?", (session, first, last), bodies)


def rows_at(db: sqlite3.Connection, session: int, session_id: str, seqs: Sequence[int]) -> MessageRows:
    """The rows of the messages at these positions."""
    condition = "session = ? AND seq IN (SELECT value FROM json_each(?))"
    return _rows(db, session_id, condition, (session, json.dumps(list(seqs))), True)


def _rows(
    db: sqlite3.Connection, session_id: str, condition: str, values: Sequence[object], bodies: bool
) -> MessageRows:
    rows = db.execute(
        f"SELECT {_COLUMNS}, {'body' if bodies else 'NULL'} FROM messages WHERE {condition} ORDER BY seq", values
    ).fetchall()
    return MessageRows(session_id, rows, _blobs(db, condition, values) if bodies else {}, bodies)


def _blobs(db: sqlite3.Connection, condition: str, values: Sequence[object]) -> dict[int, list[tuple[str, bytes]]]:
    """The large strings of the messages that meet a condition, by message, in their order."""
    found: dict[int, list[tuple[str, bytes]]] = {}
    rows = db.execute(
        "SELECT message, path, content FROM messages JOIN message_blobs USING (message) JOIN blobs USING (blob)"
        f" WHERE {condition} ORDER BY message, number",
        values,
    )
    for message, path, content in rows:
        found.setdefault(message, []).append((path, content))
    return found
