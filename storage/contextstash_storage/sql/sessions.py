"""Rows of sessions, and what belongs to them beside their history."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from contextstash_storage.codec.record_json import from_json, to_json
from contextstash_storage.records import CachedSummary, Counters, Cursor
from contextstash_storage.session_extras import SessionExtras, StoredBatch
from contextstash_storage.sql.logs import keep_summary
from contextstash_storage.sql.requests import keep_proxied, read_proxied
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Repeated, Statement, Steps


def update_fields(key: Key, changes: Mapping[str, Any], stored: Callable[[Any], Any]) -> Steps[None]:
    """Change fields of a session. `stored` makes of a name or title what the store can hold."""
    for name, value in changes.items():
        written = json.dumps(dict(value)) if name == "settings" else stored(value)
        yield Statement(f"UPDATE sessions SET {name} = ? WHERE {{of}}", (written, *key))
    yield Statement("UPDATE sessions SET updated_at = ? WHERE {of}", (now().isoformat(), *key))


def put_level(key: Key, counters: Counters, level: str) -> Steps[None]:
    """Store how full a session's window is."""
    changed = counters.model_copy(update={"level": level})
    yield Statement("UPDATE sessions SET counters = ? WHERE {of}", (to_json(changed), *key))


def owners() -> Steps[list[str]]:
    """All owners that have sessions, in order."""
    rows = yield Statement("SELECT DISTINCT owner FROM sessions WHERE {seen} ORDER BY owner")
    return [owner for (owner,) in rows]


def find_ids(owner: str, prefix: str, limit: int, without_agent: str) -> Steps[list[str]]:
    """The ids of sessions that begin with `prefix`, the last changed first; not those of `without_agent`."""
    rows = yield Statement(
        "SELECT session_id FROM sessions WHERE owner = ? AND substr(session_id, 1, ?) = ? AND agent {is_not} ?"
        " ORDER BY updated_at DESC LIMIT ?",
        (owner, len(prefix), prefix, without_agent, limit),
    )
    return [session_id for (session_id,) in rows]


def read_cursor(owner: str, source: str) -> Steps[Cursor | None]:
    """How far a source has been read; None if it has not been."""
    rows = yield Statement("SELECT record FROM cursors WHERE owner = ? AND source = ? LIMIT 1", (owner, source))
    return from_json(Cursor, rows[0][0]) if rows else None


def read_extras(key: Key) -> Steps[SessionExtras]:
    """What a session has beside its history."""
    cursors = yield Statement("SELECT record FROM cursors WHERE {of} ORDER BY source", key)
    batches = yield Statement(
        "SELECT batch_id, min(first_seq), sum(count), fingerprint FROM batches WHERE {of}"
        " GROUP BY batch_id, fingerprint ORDER BY batch_id",
        key,
    )
    summaries = yield Statement("SELECT key, record FROM cached_summaries WHERE {of} ORDER BY key", key)
    return SessionExtras(
        cursors=tuple(from_json(Cursor, record) for (record,) in cursors),
        batches=tuple(
            StoredBatch(batch_id=batch_id, first_seq=first_seq, count=int(count), fingerprint=fingerprint.hex().upper())
            for batch_id, first_seq, count, fingerprint in batches
        ),
        summaries={name: from_json(CachedSummary, record) for name, record in summaries},
        proxied=(yield from read_proxied(key)),
    )


def put_extras(owner: str, key: Key, extras: SessionExtras) -> Steps[None]:
    """Store what a session has beside its history."""
    yield Repeated(
        "INSERT INTO cursors (owner, {last}, source, record) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(owner, key[-1], cursor.source, to_json(cursor)) for cursor in extras.cursors],
    )
    yield Repeated(
        "INSERT INTO batches ({key}, batch_id, first_seq, count, fingerprint{piece})"
        " VALUES ({keys}, ?, ?, ?, ?{first_piece}) ON CONFLICT DO NOTHING",
        [
            (*key, batch.batch_id, batch.first_seq, batch.count, bytes.fromhex(batch.fingerprint))
            for batch in extras.batches
        ],
    )
    for name, summary in extras.summaries.items():
        yield from keep_summary(key, name, summary)
    if extras.proxied is not None:
        yield from keep_proxied(key, extras.proxied)
