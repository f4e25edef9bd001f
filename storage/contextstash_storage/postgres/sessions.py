"""Rows of sessions in PostgreSQL, and the lock that every writer of a session takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from contextstash_storage.codec.record_json import to_json
from contextstash_storage.postgres.dialect import stored_name
from contextstash_storage.records import Counters, Session
from contextstash_storage.sql.requests import note_deleted
from contextstash_storage.sql.rows import no_session, now
from contextstash_storage.sql.steps import Key, Result, Statement, Steps

TABLES = (
    "messages",
    "bodies",
    "outputs",
    "edits",
    "events",
    "calls",
    "cursors",
    "leases",
    "cached_summaries",
    "batches",
    "requests",
    "declared_parts",
    "proxied_sessions",
    "search_entries",
)
"""The tables that hold what belongs to a session."""

_LABELS = ("agent", "model", "format", "title", "source")


def insert_session(session: Session) -> Steps[bool]:
    """Store a session's row; False if its owner has one of that id."""
    counters = session.counters
    rows = yield Statement(
        "INSERT INTO sessions (owner, session_id, agent, model, format, title, source, settings, parent_session_id,"
        " created_at, updated_at, counters, messages, appended)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING RETURNING 1",
        (
            session.owner,
            session.session_id,
            *(stored_name(getattr(session, name)) for name in _LABELS),
            json.dumps(dict(session.settings)),
            session.parent_session_id,
            session.created_at.isoformat(),
            session.updated_at.isoformat(),
            to_json(counters),
            counters.messages,
            counters.appended,
        ),
    )
    return bool(rows)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What was added to a session's index, and the time of its newest message if any was stored."""

    entries: int = 0
    words: int = 0
    last_at: str | None = None


_INDEXED = (
    "indexed_entries = indexed_entries + ?, indexed_words = indexed_words + ?,"
    " last_message_at = coalesce(?, last_message_at)"
)


def add_indexed(key: Key, added: Indexed) -> Steps[None]:
    """Count what was added to a session's index."""
    values = (added.entries, added.words, added.last_at)
    yield Statement(f"UPDATE sessions SET {_INDEXED} WHERE {{of}}", (*values, *key))


def store_counters(key: Key, session: Session, counters: Counters, added: Indexed | None = None) -> Steps[Session]:
    """Store a session's counters, and what was added to its index; returns the changed session."""
    updated, added = now(), added or Indexed()
    indexed = (added.entries, added.words, added.last_at)
    counted = (to_json(counters), updated.isoformat(), counters.messages, counters.appended)
    yield Statement(
        f"UPDATE sessions SET {_INDEXED}, counters = ?, updated_at = ?, messages = ?, appended = ? WHERE {{of}}",
        (*indexed, *counted, *key),
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})


def delete_session(key: Key) -> Steps[None]:
    """Delete a session and all that belongs to it. Raises SessionNotFoundError."""
    yield from note_deleted(key[0], key[1], key)
    if not (yield Statement("DELETE FROM sessions WHERE {of} RETURNING 1", key)):
        raise no_session(key[1])
    yield Statement("UPDATE sessions SET parent_session_id = NULL WHERE owner = ? AND parent_session_id = ?", key)
    for table in TABLES:
        yield Statement(f"DELETE FROM {table} WHERE {{of}}", key)


def check_session(key: Key) -> Steps[None]:
    """Raise SessionNotFoundError if there is no such session."""
    if not (yield Statement("SELECT 1 FROM sessions WHERE {of}", key)):
        raise no_session(key[1])


def checked(key: Key, read: Callable[[Key], Steps[Result]]) -> Steps[Result]:
    """The result of reading a session. Raises SessionNotFoundError if there is none."""
    yield from check_session(key)
    return (yield from read(key))
