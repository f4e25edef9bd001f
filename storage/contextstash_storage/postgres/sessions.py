"""Rows of sessions in PostgreSQL, and the lock that every writer of a session takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.logs import insert_event
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.records import Counters, Event, Session
from contextstash_storage.search.documents import storable
from contextstash_storage.sqlite.rows import SESSION_COLUMNS, no_session, now, session_of, to_json

COLUMNS = SESSION_COLUMNS.replace("session,", "0,", 1)
"""Rows have no numbers here."""

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
    return _found(await db.fetchrow(f"SELECT {COLUMNS} FROM sessions WHERE {OF_SESSION}", *key), key)


async def lock_session(db: Connection, key: Key) -> Session:
    """A session that no other transaction changes until this one ends. Raises SessionNotFoundError."""
    return _found(await db.fetchrow(f"SELECT {COLUMNS} FROM sessions WHERE {OF_SESSION} FOR UPDATE", *key), key)


def _found(row: Any, key: Key) -> Session:
    if row is None:
        raise no_session(key[1])
    return session_of(tuple(row))


async def insert_session(db: Connection, session: Session) -> bool:
    """Store a session's row; False if its owner has one of that id."""
    counters = session.counters
    done = await db.execute(
        "INSERT INTO sessions (owner, session_id, agent, model, format, title, source, settings, parent_session_id,"
        " created_at, updated_at, counters, messages, appended)"
        " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING",
        session.owner,
        session.session_id,
        *(_label(getattr(session, name)) for name in _LABELS),
        json.dumps(dict(session.settings)),
        session.parent_session_id,
        session.created_at.isoformat(),
        session.updated_at.isoformat(),
        to_json(counters),
        counters.messages,
        counters.appended,
    )
    return bool(done.endswith(" 1"))


def _label(text: str | None) -> str | None:
    """A name or title as PostgreSQL can hold it."""
    return None if text is None else storable(text)


async def update_session(db: Connection, key: Key, changes: Mapping[str, Any]) -> Session:
    """Change fields of a session."""
    await lock_session(db, key)
    for name, value in changes.items():
        stored = json.dumps(dict(value)) if name == "settings" else _label(value)
        await db.execute(f"UPDATE sessions SET {name} = $3 WHERE {OF_SESSION}", *key, stored)
    await db.execute(f"UPDATE sessions SET updated_at = $3 WHERE {OF_SESSION}", *key, now().isoformat())
    return await read_session(db, key)


@dataclass(frozen=True, slots=True)
class Indexed:
    """What was added to a session's index, and the time of its newest message if any was stored."""

    entries: int = 0
    words: int = 0
    last_at: str | None = None


_INDEXED = (
    "indexed_entries = indexed_entries + $3, indexed_words = indexed_words + $4,"
    " last_message_at = coalesce($5, last_message_at)"
)


async def add_indexed(db: Connection, key: Key, added: Indexed) -> None:
    """Count what was added to a session's index."""
    await db.execute(
        f"UPDATE sessions SET {_INDEXED} WHERE {OF_SESSION}", *key, added.entries, added.words, added.last_at
    )


async def store_counters(
    db: Connection, key: Key, session: Session, counters: Counters, added: Indexed | None = None
) -> Session:
    """Store a session's counters, and what was added to its index; returns the changed session."""
    updated, added = now(), added or Indexed()
    await db.execute(
        f"UPDATE sessions SET {_INDEXED}, counters = $6, updated_at = $7, messages = $8, appended = $9"
        f" WHERE {OF_SESSION}",
        *key,
        added.entries,
        added.words,
        added.last_at,
        to_json(counters),
        updated.isoformat(),
        counters.messages,
        counters.appended,
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})


async def changed(db: Connection, key: Key, session: Session, counters: Counters, event: Event | None) -> Session:
    """Store a session's counters, and an event with them; returns the changed session."""
    if event is not None:
        await insert_event(db, key, event)
    return await store_counters(db, key, session, counters)


async def delete_session(db: Connection, key: Key) -> None:
    """Delete a session and all that belongs to it. Raises SessionNotFoundError."""
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


async def find_ids(db: Connection, owner: str, prefix: str, limit: int, without_agent: str) -> list[str]:
    """The ids of sessions that begin with `prefix`, the last changed first; not those of `without_agent`."""
    rows = await db.fetch(
        "SELECT session_id FROM sessions WHERE owner = $1 AND session_id ^@ $2 AND agent IS DISTINCT FROM $3"
        " ORDER BY updated_at DESC LIMIT $4",
        owner,
        prefix,
        without_agent,
        limit,
    )
    return [session_id for (session_id,) in rows]


async def owners(db: Connection) -> list[str]:
    """All owners that have sessions, in order."""
    return [owner for (owner,) in await db.fetch("SELECT DISTINCT owner FROM sessions ORDER BY owner")]


async def put_level(db: Connection, key: Key, session: Session, level: str) -> None:
    """Store how full a session's window is."""
    counters = session.counters.model_copy(update={"level": level})
    await db.execute(f"UPDATE sessions SET counters = $3 WHERE {OF_SESSION}", *key, to_json(counters))
