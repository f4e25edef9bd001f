"""Requests and declared parts in the database: what was handed out beside and from the view."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Sequence

from contextstash_storage.codec.bodies import to_bytes
from contextstash_storage.records import Counters, Declared, DeclaredVersion, Request, Usage
from contextstash_storage.sqlite.rows import from_json, now, to_json

DETAILED_REQUESTS = 8
"""How many of the newest requests keep the names of what was shortened; of older ones only figures are kept. A guess: a
late usage report belongs to one of the last few."""

_FIGURES = {"left_out": None, "shortened": ()}


def insert_request(
    db: sqlite3.Connection, session: int, counters: Counters, request: Request
) -> tuple[Request, Counters]:
    """Store a request under the next number; returns it and the counters after it."""
    placed, counters = numbered(counters, request)
    put_request(db, session, placed)
    if (old := read_request(db, session, placed.number - DETAILED_REQUESTS)) is not None:
        put_request(db, session, figures_of(old))
    return placed, counters


def numbered(counters: Counters, request: Request) -> tuple[Request, Counters]:
    """A request under the next number, and the counters after it."""
    number = counters.requests + 1
    placed = request.model_copy(update={"number": number, "created_at": request.created_at or now()})
    return placed, counters.model_copy(update={"requests": number, "request": placed.sent})


def figures_of(request: Request) -> Request:
    """What is kept of an old request."""
    return request.model_copy(update=_FIGURES)


def put_request(db: sqlite3.Connection, session: int, request: Request) -> None:
    """Store a request under its own number."""
    db.execute(
        "INSERT INTO requests (session, request, record) VALUES (?, ?, ?)"
        " ON CONFLICT (session, request) DO UPDATE SET record = excluded.record",
        (session, request.number, to_json(request)),
    )


def book_usage(db: sqlite3.Connection, session: int, number: int, usage: Usage) -> Request | None:
    """Add the reported usage to a request; None if there is no such request."""
    request = read_request(db, session, number)
    if request is not None:
        request = request.model_copy(update={"usage": usage})
        put_request(db, session, request)
    return request


def read_request(db: sqlite3.Connection, session: int, number: int) -> Request | None:
    """The request of this number; None if there is none."""
    row = db.execute("SELECT record FROM requests WHERE session = ? AND request = ?", (session, number)).fetchone()
    return None if row is None else from_json(Request, row[0])


def read_requests(db: sqlite3.Connection, session: int, last: int) -> list[Request]:
    """The newest requests, newest first."""
    rows = db.execute("SELECT record FROM requests WHERE session = ? ORDER BY request DESC LIMIT ?", (session, last))
    return [from_json(Request, record) for (record,) in rows]


def list_requests(db: sqlite3.Connection, session: int, after: int, limit: int) -> list[Request]:
    """The requests behind this number, oldest first."""
    rows = db.execute(
        "SELECT record FROM requests WHERE session = ? AND request > ? ORDER BY request LIMIT ?",
        (session, after, limit),
    )
    return [from_json(Request, record) for (record,) in rows]


def declare(
    db: sqlite3.Connection,
    session: int,
    counters: Counters,
    parts: Sequence[DeclaredVersion],
    change: Callable[[Declared, Sequence[int]], Declared],
) -> Counters:
    """Store the parts that are not stored yet; returns the counters with the changed declaration."""
    versions = [_version(db, session, part) for part in parts]
    return counters.model_copy(update={"declared": change(counters.declared, versions)})


def _version(db: sqlite3.Connection, session: int, part: DeclaredVersion) -> int:
    fingerprint = part_fingerprint(part)
    known = db.execute(
        "SELECT version FROM declared_parts WHERE session = ? AND fingerprint = ?", (session, fingerprint)
    ).fetchone()
    if known is not None:
        return int(known[0])
    [newest] = db.execute(
        "SELECT coalesce(max(version), 0) FROM declared_parts WHERE session = ?", (session,)
    ).fetchone()
    placed = part.model_copy(update={"version": newest + 1, "created_at": part.created_at or now()})
    put_declared(db, session, placed)
    return placed.version


def put_declared(db: sqlite3.Connection, session: int, part: DeclaredVersion) -> None:
    """Store a declared part under its own version."""
    db.execute(
        "INSERT INTO declared_parts (session, version, fingerprint, content, record) VALUES (?, ?, ?, ?, ?)",
        (session, *part_values(part)),
    )


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


def read_declared(db: sqlite3.Connection, session: int, versions: Sequence[int] | None) -> list[DeclaredVersion]:
    """These versions, or all, in order."""
    condition = "" if versions is None else " AND version IN (SELECT value FROM json_each(?))"
    values = (session,) if versions is None else (session, json.dumps(list(versions)))
    rows = db.execute(
        f"SELECT content, record FROM declared_parts WHERE session = ?{condition} ORDER BY version", values
    )
    return [part_of(content, record) for content, record in rows]
