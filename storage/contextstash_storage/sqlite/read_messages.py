"""The rows of messages with their large strings, the records made of them, and what is new in a session."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from contextstash_storage.codec.bodies import Dictionary
from contextstash_storage.codec.record_json import edit_of, message_of
from contextstash_storage.records import KnownPart, Message, SessionNews
from contextstash_storage.sql import requests
from contextstash_storage.sql.edits import edit_records
from contextstash_storage.sql.outputs import output_rows
from contextstash_storage.sql.rows import made
from contextstash_storage.sqlite.connection import run, session_row
from contextstash_storage.sqlite.dictionaries import dictionary_of
from contextstash_storage.sqlite.output_rows import output_of
from contextstash_storage.sqlite.rows import BODY, STORED_TIME

_COLUMNS = f"message, seq, key, derived, {STORED_TIME}"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows of messages in order, their large strings by message, and the dictionary of their session; without
    bodies none of these."""

    session_id: str
    rows: Sequence[tuple[Any, ...]]
    blobs: dict[int, list[tuple[str, bytes]]] = field(default_factory=dict)
    bodies: bool = True
    dictionary: Dictionary | None = None

    async def messages(self) -> list[Message]:
        """The messages of these rows."""
        return await made(self._message, self.rows)

    def _message(self, row: tuple[Any, ...]) -> Message:
        number, seq, key, derived, created, body = row
        stored = (body, self.blobs.get(number, [])) if self.bodies else None
        return message_of(self.session_id, (seq, key, derived, created), stored, self.dictionary)


def rows_between(
    db: sqlite3.Connection, session: int, session_id: str, first: int, last: int, *, bodies: bool
) -> MessageRows:
    """The rows of the messages `first` to `last` of a session."""
    return _rows(db, session_id, "seq BETWEEN ? AND ?", (session, first, last), bodies)


def rows_at(db: sqlite3.Connection, session: int, session_id: str, seqs: Sequence[int]) -> MessageRows:
    """The rows of the messages at these positions."""
    condition = "seq IN (SELECT value FROM json_each(?))"
    return _rows(db, session_id, condition, (session, json.dumps(list(seqs))), True)


def _rows(
    db: sqlite3.Connection, session_id: str, condition: str, values: tuple[Any, ...], bodies: bool
) -> MessageRows:
    """The rows of a session that meet a condition; its row is the first of the values."""
    condition = f"session = ? AND {condition}"
    rows = db.execute(
        f"SELECT {_COLUMNS}, {BODY if bodies else 'NULL'} FROM messages WHERE {condition} ORDER BY seq", values
    ).fetchall()
    if not bodies:
        return MessageRows(session_id, rows, bodies=False)
    return MessageRows(session_id, rows, _blobs(db, condition, values), True, dictionary_of(db, values[0]))


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


NO_ROWS = MessageRows("", ())


def read_news(db: sqlite3.Connection, owner: str, session_id: str, known: KnownPart) -> tuple[SessionNews, MessageRows]:
    """The news of a session, and the rows of its messages, which are made of them elsewhere. Raises
    SessionNotFoundError."""
    row, session = session_row(db, owner, session_id)
    counters = session.counters
    newest = run(db, requests.read_requests((row,))) if counters.requests else []
    edits = run(db, edit_records((row,), known.edits)) if counters.edits > known.edits else []
    span = known.span(counters)
    rows = rows_between(db, row, session_id, *span, bodies=True) if span else NO_ROWS
    outputs = map(output_of, run(db, output_rows((row,), *span))) if span else ()
    news = SessionNews(session, known, newest[0] if newest else None, tuple(map(edit_of, edits)), (), tuple(outputs))
    return news, rows
