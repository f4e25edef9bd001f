"""Requests, declared parts and what the proxy knows: what was handed out beside and from the view."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Sequence
from datetime import timedelta

from contextstash_storage.codec.bodies import to_bytes
from contextstash_storage.codec.record_json import from_json, to_json
from contextstash_storage.deleted_sessions import KEPT_DAYS, DeletedSession, deleted_session
from contextstash_storage.records import Counters, Declared, DeclaredVersion, ProxiedSession, Request, Usage
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Repeated, Statement, Steps, marks, only

DETAILED_REQUESTS = 8
"""How many of the newest requests keep the names of what was shortened; of older ones only figures are kept. A
late usage report belongs to one of the last few."""

_FIGURES = {"left_out": None, "shortened": ()}


def numbered(counters: Counters, request: Request) -> tuple[Request, Counters]:
    """A request under the next number, and the counters after it."""
    number = counters.requests + 1
    placed = request.model_copy(update={"number": number, "created_at": request.created_at or now()})
    return placed, counters.model_copy(update={"requests": number, "request": placed.sent})


def figures_of(request: Request) -> Request:
    """What is kept of an old request."""
    return request.model_copy(update=_FIGURES)


def part_values(part: DeclaredVersion) -> tuple[int, bytes, bytes, str]:
    """A declared part as it is stored: version, fingerprint, content and the rest of it."""
    bare = part.model_copy(update={"content": None})
    return part.version, part_fingerprint(part), zlib.compress(to_bytes(part.content)), to_json(bare)


def part_of(content: bytes, record: str) -> DeclaredVersion:
    """The declared part of `part_values`."""
    return from_json(DeclaredVersion, record).model_copy(update={"content": json.loads(zlib.decompress(content))})


def part_fingerprint(part: DeclaredVersion) -> bytes:
    """What makes two declared parts the same."""
    return hashlib.sha256(part.part.encode() + b"\0" + to_bytes(part.content)).digest()


def insert_request(key: Key, counters: Counters, request: Request) -> Steps[tuple[Request, Counters]]:
    """Store a request under the next number; returns it and the counters after it."""
    placed, counters = numbered(counters, request)
    old = yield from get_request(key, placed.number - DETAILED_REQUESTS)
    yield from put_requests(key, [placed] if old is None else [placed, figures_of(old)])
    return placed, counters


def put_requests(key: Key, placed: Sequence[Request]) -> Steps[None]:
    """Store requests under their own numbers."""
    yield Repeated(
        "INSERT INTO requests ({key}, request, record) VALUES ({keys}, ?, ?)"
        " ON CONFLICT ({key}, request) DO UPDATE SET record = excluded.record",
        [(*key, request.number, to_json(request)) for request in placed],
    )


def book_usage(key: Key, number: int, usage: Usage) -> Steps[None]:
    """Add the reported usage to a request, if it exists."""
    request = yield from get_request(key, number)
    if request is not None:
        yield from put_requests(key, [request.model_copy(update={"usage": usage})])


def get_request(key: Key, number: int) -> Steps[Request | None]:
    """The request of this number; None if there is none."""
    rows = yield Statement("SELECT record FROM requests WHERE {of} AND request = ?", (*key, number))
    return from_json(Request, rows[0][0]) if rows else None


def read_requests(key: Key, *, last: int = 1) -> Steps[list[Request]]:
    """The newest requests, newest first."""
    rows = yield Statement("SELECT record FROM requests WHERE {of} ORDER BY request DESC LIMIT ?", (*key, last))
    return [from_json(Request, record) for (record,) in rows]


def list_requests(key: Key, *, after: int = 0, limit: int = 100) -> Steps[list[Request]]:
    """The requests behind this number, oldest first."""
    rows = yield Statement(
        "SELECT record FROM requests WHERE {of} AND request > ? ORDER BY request LIMIT ?", (*key, after, limit)
    )
    return [from_json(Request, record) for (record,) in rows]


def declare(
    key: Key,
    counters: Counters,
    parts: Sequence[DeclaredVersion],
    change: Callable[[Declared, Sequence[int]], Declared],
) -> Steps[Counters]:
    """Store the parts that are not stored yet; returns the counters with the changed declaration."""
    versions = []
    for part in parts:
        versions.append((yield from _version(key, part)))
    return counters.model_copy(update={"declared": change(counters.declared, versions)})


def _version(key: Key, part: DeclaredVersion) -> Steps[int]:
    fingerprint = part_fingerprint(part)
    rows = yield Statement("SELECT version FROM declared_parts WHERE {of} AND fingerprint = ?", (*key, fingerprint))
    if rows:
        return int(rows[0][0])
    newest = only((yield Statement("SELECT coalesce(max(version), 0) FROM declared_parts WHERE {of}", key)))
    placed = part.model_copy(update={"version": newest + 1, "created_at": part.created_at or now()})
    yield from put_declared(key, placed)
    return placed.version


def put_declared(key: Key, part: DeclaredVersion) -> Steps[None]:
    """Store a declared part under its own version."""
    yield Statement(
        "INSERT INTO declared_parts ({key}, version, fingerprint, content, record) VALUES ({keys}, ?, ?, ?, ?)",
        (*key, *part_values(part)),
    )


def read_declared(key: Key, versions: Sequence[int] | None = None) -> Steps[list[DeclaredVersion]]:
    """These versions of the declared parts, or all, in order."""
    if versions is not None and not versions:
        return []
    condition = "" if versions is None else f" AND version IN ({marks(versions)})"
    text = f"SELECT content, record FROM declared_parts WHERE {{of}}{condition} ORDER BY version"
    rows = yield Statement(text, (*key, *(versions or ())))
    return [part_of(content, record) for content, record in rows]


def get_proxied(key: Key) -> Steps[ProxiedSession | None]:
    """What the proxy knows of a session; None if none of its requests went through the proxy."""
    rows = yield Statement("SELECT record FROM proxied_sessions WHERE {of}", key)
    return from_json(ProxiedSession, rows[0][0]) if rows else None


def put_proxied(key: Key, proxied: ProxiedSession) -> Steps[None]:
    """Store this in place of what was known before."""
    yield Statement(
        "INSERT INTO proxied_sessions ({key}, last_at, record) VALUES ({keys}, ?, ?)"
        " ON CONFLICT ({key}) DO UPDATE SET last_at = excluded.last_at, record = excluded.record",
        (*key, proxied.last_at, to_json(proxied)),
    )


def recent_proxied(owner: str, since: float, limit: int) -> Steps[list[tuple[str, ProxiedSession]]]:
    """The sessions with requests since a time, by their ids, the newest first."""
    rows = yield Statement(
        "SELECT session_id, record FROM proxied_sessions JOIN sessions USING ({key})"
        " WHERE owner = ? AND last_at >= ? ORDER BY last_at DESC LIMIT ?",
        (owner, since, limit),
    )
    return [(session_id, from_json(ProxiedSession, record)) for session_id, record in rows]


def note_deleted(owner: str, session_id: str, key: Key) -> Steps[None]:
    """Store how a session is recognized that is being deleted."""
    proxied = yield from get_proxied(key)
    yield Statement("DELETE FROM deleted_sessions WHERE deleted_at < ?", (_oldest_deletion(),))
    yield _insert_deleted(owner, deleted_session(session_id, proxied))


def deleted_sessions(owner: str) -> Steps[list[DeletedSession]]:
    """The sessions that were deleted in the last KEPT_DAYS."""
    text = "SELECT record FROM deleted_sessions WHERE owner = ? AND deleted_at >= ?"
    rows = yield Statement(text, (owner, _oldest_deletion()))
    return [from_json(DeletedSession, record) for (record,) in rows]


def copy_deleted(owner: str, sessions: Sequence[DeletedSession]) -> Steps[None]:
    """Store how these sessions are recognized, which were deleted in another database, if that is not stored yet."""
    known = yield from deleted_sessions(owner)
    for session in sessions:
        if session not in known:
            yield _insert_deleted(owner, session)


def _insert_deleted(owner: str, session: DeletedSession) -> Statement:
    values = (owner, now().isoformat(), to_json(session))
    return Statement("INSERT INTO deleted_sessions (owner, deleted_at, record) VALUES (?, ?, ?)", values)


def note_responses(owner: str, session_id: str, beginnings: Sequence[str], responses: Sequence[str]) -> Steps[None]:
    """Add the responses that the client of a deleted session got to what is stored of it."""
    text = "SELECT record FROM deleted_sessions WHERE owner = ? AND deleted_at >= ?"
    for (record,) in (yield Statement(text, (owner, _oldest_deletion()))):
        known = from_json(DeletedSession, record)
        if any(known.is_continued_by(session_id, beginnings, each) for each in (None, *responses)):
            values = (to_json(known.with_responses(responses)), owner, record)
            yield Statement("UPDATE deleted_sessions SET record = ? WHERE owner = ? AND record = ?", values)


def _oldest_deletion() -> str:
    return (now() - timedelta(days=KEPT_DAYS)).isoformat()
