"""What a session in PostgreSQL has beside its history."""

from __future__ import annotations

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.logs import keep_summary
from contextstash_storage.postgres.requests import keep_proxied, read_proxied
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.records import CachedSummary, Cursor
from contextstash_storage.session_extras import SessionExtras, StoredBatch
from contextstash_storage.sqlite.rows import from_json, to_json


async def read(db: Connection, key: Key) -> SessionExtras:
    """What a session has beside its history."""
    cursors = await db.fetch(f"SELECT record FROM cursors WHERE {OF_SESSION} ORDER BY source", *key)
    batches = await db.fetch(
        "SELECT batch_id, first_seq, count, upper(encode(fingerprint, 'hex')) AS fingerprint FROM batches"
        f" WHERE {OF_SESSION} ORDER BY batch_id",
        *key,
    )
    summaries = await db.fetch(f"SELECT key, record FROM cached_summaries WHERE {OF_SESSION} ORDER BY key", *key)
    return SessionExtras(
        cursors=tuple(from_json(Cursor, record) for (record,) in cursors),
        batches=tuple(StoredBatch(**dict(row)) for row in batches),
        summaries={name: from_json(CachedSummary, record) for name, record in summaries},
        proxied=await read_proxied(db, key),
    )


async def put(db: Connection, key: Key, extras: SessionExtras) -> None:
    """Store what a session has beside its history."""
    await db.executemany(
        "INSERT INTO cursors (owner, session_id, source, record) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        [(*key, cursor.source, to_json(cursor)) for cursor in extras.cursors],
    )
    await db.executemany(
        "INSERT INTO batches (owner, session_id, batch_id, first_seq, count, fingerprint)"
        " VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT DO NOTHING",
        [
            (*key, batch.batch_id, batch.first_seq, batch.count, bytes.fromhex(batch.fingerprint))
            for batch in extras.batches
        ],
    )
    for name, summary in extras.summaries.items():
        await keep_summary(db, key, name, summary)
    if extras.proxied is not None:
        await keep_proxied(db, key, extras.proxied)
