"""Requests, declared parts and what the proxy knows in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.records import Counters, Declared, DeclaredVersion, ProxiedSession, Request, Usage
from contextstash_storage.sqlite.requests import (
    DETAILED_REQUESTS,
    figures_of,
    numbered,
    part_fingerprint,
    part_of,
    part_values,
)
from contextstash_storage.sqlite.rows import from_json, now, to_json


async def insert_request(db: Connection, key: Key, counters: Counters, request: Request) -> tuple[Request, Counters]:
    """Store a request under the next number; returns it and the counters after it."""
    placed, counters = numbered(counters, request)
    old = await read_request(db, key, placed.number - DETAILED_REQUESTS)
    await put_requests(db, key, [placed] if old is None else [placed, figures_of(old)])
    return placed, counters


async def put_requests(db: Connection, key: Key, placed: Sequence[Request]) -> None:
    """Store requests under their own numbers."""
    await db.executemany(
        "INSERT INTO requests (owner, session_id, request, record) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (owner, session_id, request) DO UPDATE SET record = excluded.record",
        [(*key, request.number, to_json(request)) for request in placed],
    )


async def book_usage(db: Connection, key: Key, number: int, usage: Usage) -> None:
    """Add the reported usage to a request, if it exists."""
    request = await read_request(db, key, number)
    if request is not None:
        await put_requests(db, key, [request.model_copy(update={"usage": usage})])


async def read_request(db: Connection, key: Key, number: int) -> Request | None:
    """The request of this number; None if there is none."""
    record = await db.fetchval(f"SELECT record FROM requests WHERE {OF_SESSION} AND request = $3", *key, number)
    return None if record is None else from_json(Request, record)


async def read_requests(db: Connection, key: Key, last: int) -> list[Request]:
    """The newest requests, newest first."""
    sql = f"SELECT record FROM requests WHERE {OF_SESSION} ORDER BY request DESC LIMIT $3"
    return [from_json(Request, record) for (record,) in await db.fetch(sql, *key, last)]


async def list_requests(db: Connection, key: Key, after: int, limit: int) -> list[Request]:
    """The requests behind this number, oldest first."""
    sql = f"SELECT record FROM requests WHERE {OF_SESSION} AND request > $3 ORDER BY request LIMIT $4"
    return [from_json(Request, record) for (record,) in await db.fetch(sql, *key, after, limit)]


async def declare(
    db: Connection,
    key: Key,
    counters: Counters,
    parts: Sequence[DeclaredVersion],
    change: Callable[[Declared, Sequence[int]], Declared],
) -> Counters:
    """Store the parts that are not stored yet; returns the counters with the changed declaration."""
    versions = [await _version(db, key, part) for part in parts]
    return counters.model_copy(update={"declared": change(counters.declared, versions)})


async def _version(db: Connection, key: Key, part: DeclaredVersion) -> int:
    known = await db.fetchval(
        f"SELECT version FROM declared_parts WHERE {OF_SESSION} AND fingerprint = $3", *key, part_fingerprint(part)
    )
    if known is not None:
        return int(known)
    newest = await db.fetchval(f"SELECT coalesce(max(version), 0) FROM declared_parts WHERE {OF_SESSION}", *key)
    placed = part.model_copy(update={"version": newest + 1, "created_at": part.created_at or now()})
    await put_declared(db, key, placed)
    return placed.version


async def put_declared(db: Connection, key: Key, part: DeclaredVersion) -> None:
    """Store a declared part under its own version."""
    await db.execute(
        "INSERT INTO declared_parts (owner, session_id, version, fingerprint, content, record)"
        " VALUES ($1, $2, $3, $4, $5, $6)",
        *key,
        *part_values(part),
    )


async def read_declared(db: Connection, key: Key, versions: Sequence[int] | None) -> list[DeclaredVersion]:
    """These versions, or all, in order."""
    rows = await db.fetch(
        f"SELECT content, record FROM declared_parts WHERE {OF_SESSION}"
        " AND ($3::bigint[] IS NULL OR version = ANY($3)) ORDER BY version",
        *key,
        None if versions is None else list(versions),
    )
    return [part_of(content, record) for content, record in rows]


async def read_proxied(db: Connection, key: Key) -> ProxiedSession | None:
    """What the proxy knows of a session; None if none of its requests went through the proxy."""
    record = await db.fetchval(f"SELECT record FROM proxied_sessions WHERE {OF_SESSION}", *key)
    return None if record is None else from_json(ProxiedSession, record)


async def keep_proxied(db: Connection, key: Key, proxied: ProxiedSession) -> None:
    """Store this in place of what was known before."""
    await db.execute(
        "INSERT INTO proxied_sessions (owner, session_id, last_at, record) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (owner, session_id) DO UPDATE SET last_at = excluded.last_at, record = excluded.record",
        *key,
        proxied.last_at,
        to_json(proxied),
    )


async def recent_proxied(db: Connection, owner: str, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
    """The sessions with requests since a time, by their ids, the newest first."""
    rows = await db.fetch(
        "SELECT session_id, record FROM proxied_sessions WHERE owner = $1 AND last_at >= $2"
        " ORDER BY last_at DESC LIMIT $3",
        owner,
        since,
        limit,
    )
    return [(session_id, from_json(ProxiedSession, record)) for session_id, record in rows]
