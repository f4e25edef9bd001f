"""Rows of sessions in PostgreSQL, and the lock that every writer of a session takes."""

from __future__ import annotations

import json
from dataclasses import dataclass

from contextstash_storage.codec.record_json import to_json
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION, run, stored_name
from contextstash_storage.records import Counters, Session
from contextstash_storage.sql import rows
from contextstash_storage.sql.requests import note_deleted
from contextstash_storage.sql.rows import no_session, now
from contextstash_storage.sql.steps import Key, Statement, Steps

TABLES = (
    "messages",
    "blobs",
    "message_blobs",
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


async def read_session(db: Connection, key: Key) -> Session:
    """A session as it is. Raises SessionNotFoundError."""
    return (await run(db, rows.read_session(*key)))[1]


async def lock_session(db: Connection, key: Key) -> Session:
    """A session that no other transaction changes until this one ends. Raises SessionNotFoundError."""
    return (await run(db, rows.read_session(*key, locked=True)))[1]


async def insert_session(db: Connection, session: Session) -> bool:
    """Store a session's row; False if its owner has one of that id."""
    counters = session.counters
    done = await db.execute(
        "INSERT INTO sessions (owner, session_id, agent, model, format, title, source, settings, parent_session_id,"
        " created_at, updated_at, counters, messages, appended)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING",
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
    )
    return bool(done.endswith(" 1"))


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


async def delete_session(db: Connection, key: Key) -> None:
    """Delete a session and all that belongs to it. Raises SessionNotFoundError."""
    await run(db, note_deleted(key[0], key[1], key))
    deleted = await db.execute(f"DELETE FROM sessions WHERE {OF_SESSION}", *key)
    if not deleted.endswith(" 1"):
        raise no_session(key[1])
    await db.execute("UPDATE sessions SET parent_session_id = NULL WHERE owner = $1 AND parent_session_id = $2", *key)
    for table in TABLES:
        await db.execute(f"DELETE FROM {table} WHERE {OF_SESSION}", *key)


async def check_session(db: Connection, key: Key) -> None:
    """Raise SessionNotFoundError if there is no such session."""
    if not await db.fetchval(f"SELECT EXISTS (SELECT FROM sessions WHERE {OF_SESSION})", *key):
        raise no_session(key[1])
