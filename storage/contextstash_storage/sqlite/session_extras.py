"""What a session has beside its history, in SQLite."""

from __future__ import annotations

import sqlite3

from contextstash_storage.records import CachedSummary, Cursor
from contextstash_storage.session_extras import SessionExtras, StoredBatch
from contextstash_storage.sqlite.logs import keep_summary
from contextstash_storage.sqlite.proxied_sessions import keep as keep_proxied
from contextstash_storage.sqlite.proxied_sessions import read as read_proxied
from contextstash_storage.sqlite.rows import from_json, to_json


def read(db: sqlite3.Connection, session: int) -> SessionExtras:
    """What a session has beside its history."""
    cursors = db.execute("SELECT record FROM cursors WHERE session = ? ORDER BY source", (session,))
    batches = db.execute(
        "SELECT batch_id, min(first_seq), sum(count), hex(fingerprint) FROM batches WHERE session = ?"
        " GROUP BY batch_id ORDER BY batch_id",
        (session,),
    )
    summaries = db.execute("SELECT key, record FROM cached_summaries WHERE session = ? ORDER BY key", (session,))
    return SessionExtras(
        cursors=tuple(from_json(Cursor, record) for (record,) in cursors),
        batches=tuple(
            StoredBatch(batch_id=batch_id, first_seq=first_seq, count=count, fingerprint=fingerprint)
            for batch_id, first_seq, count, fingerprint in batches
        ),
        summaries={key: from_json(CachedSummary, record) for key, record in summaries},
        proxied=read_proxied(db, session),
    )


def put(db: sqlite3.Connection, owner: str, session: int, extras: SessionExtras) -> None:
    """Store what a session has beside its history."""
    for cursor in extras.cursors:
        db.execute(
            "INSERT INTO cursors (owner, source, session, record) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (owner, cursor.source, session, to_json(cursor)),
        )
    for batch in extras.batches:
        db.execute(
            "INSERT INTO batches (session, batch_id, place, first_seq, count, fingerprint) VALUES (?, ?, 0, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (session, batch.batch_id, batch.first_seq, batch.count, bytes.fromhex(batch.fingerprint)),
        )
    for key, summary in extras.summaries.items():
        keep_summary(db, session, key, summary)
    if extras.proxied is not None:
        keep_proxied(db, session, extras.proxied)
