"""A session's log in the database: events, model calls, and summaries written before."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence

from contextstash_storage.codec.derived_form import tokens_of
from contextstash_storage.records import BlockType, CachedSummary, Call, Event, EventKind, Kind, Role, TokenSum
from contextstash_storage.sqlite.rows import from_json, now, to_json


def insert_event(db: sqlite3.Connection, session: int, event: Event) -> None:
    """Store an event, with the current time if it has none."""
    stamped = event.model_copy(update={"created_at": event.created_at or now()})
    db.execute("INSERT INTO events (session, kind, record) VALUES (?, ?, ?)", (session, stamped.kind, to_json(stamped)))


def read_events(db: sqlite3.Connection, session: int, after: int, limit: int) -> list[Event]:
    """Events after the one numbered `after`, oldest first."""
    rows = db.execute(
        "SELECT event_id, record FROM events WHERE session = ? AND event_id > ? ORDER BY event_id LIMIT ?",
        (session, after, limit),
    )
    return [_event(number, record) for number, record in rows]


def last_events(db: sqlite3.Connection, session: int, kinds: Sequence[EventKind], limit: int) -> list[Event]:
    """The newest events of these kinds, newest first."""
    marks = ", ".join("?" * len(kinds))
    rows = db.execute(
        f"SELECT event_id, record FROM events WHERE session = ? AND kind IN ({marks}) ORDER BY event_id DESC LIMIT ?",
        (session, *kinds, limit),
    )
    return [_event(number, record) for number, record in rows]


def _event(number: int, record: str) -> Event:
    return from_json(Event, record).model_copy(update={"event_id": number})


def insert_call(db: sqlite3.Connection, session: int, call: Call, reply: str | None = None) -> None:
    """Store a model call; `reply` is the provider's id of its reply, if it is an agent's."""
    stamped = call.model_copy(update={"created_at": call.created_at or now()})
    db.execute("INSERT INTO calls (session, reply, record) VALUES (?, ?, ?)", (session, reply, to_json(stamped)))


def read_calls(db: sqlite3.Connection, session: int, after: int, limit: int) -> list[Call]:
    """Calls after the one numbered `after`, oldest first."""
    rows = db.execute(
        "SELECT call_id, record FROM calls WHERE session = ? AND call_id > ? ORDER BY call_id LIMIT ?",
        (session, after, limit),
    )
    return [from_json(Call, record).model_copy(update={"call_id": number}) for number, record in rows]


def token_sums(db: sqlite3.Connection, session: int, width: int) -> list[TokenSum]:
    """Tokens by run of messages, role, kind and type of block."""
    sums: Counter[tuple[int, Role, Kind, BlockType]] = Counter()
    for seq, derived in db.execute("SELECT seq, derived FROM messages WHERE session = ?", (session,)):
        role, kind, blocks = tokens_of(derived)
        for name, tokens in blocks:
            sums[seq // width, role, kind, name] += tokens
    return [
        TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens)
        for (run, role, kind, name), tokens in sums.items()
    ]


def read_cached_summary(db: sqlite3.Connection, session: int, key: str) -> CachedSummary | None:
    """The summary stored under a key."""
    row = db.execute("SELECT record FROM cached_summaries WHERE session = ? AND key = ?", (session, key)).fetchone()
    return None if row is None else from_json(CachedSummary, row[0])


def keep_summary(db: sqlite3.Connection, session: int, key: str, summary: CachedSummary) -> None:
    """Store a summary under a key, replacing an earlier one."""
    db.execute(
        "INSERT INTO cached_summaries (session, key, record) VALUES (?, ?, ?)"
        " ON CONFLICT (session, key) DO UPDATE SET record = excluded.record",
        (session, key, to_json(summary)),
    )
