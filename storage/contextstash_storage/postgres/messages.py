"""Reads messages and their outputs from PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from contextstash_storage.message_rows import FEW
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.records import Cursor, Message, Output
from contextstash_storage.rows import from_json, message_of, no_handle

_COLUMNS = "seq, key, derived, created_at"

Made = TypeVar("Made")


async def read_range(db: Connection, key: Key, first: int, last: int, *, bodies: bool) -> list[Message]:
    """Messages `first..last`, both included, in order."""
    return await _read(db, key, "seq BETWEEN $3 AND $4", (first, last), bodies=bodies)


async def read_at(db: Connection, key: Key, seqs: Sequence[int]) -> list[Message]:
    """The messages at these positions, in order of position."""
    return await _read(db, key, "seq = ANY($3)", (list(seqs),), bodies=True)


_LARGE = """
LEFT JOIN LATERAL (
    SELECT array_agg(path ORDER BY number) AS paths, array_agg(content ORDER BY number) AS contents
    FROM message_blobs AS b CROSS JOIN LATERAL (
        SELECT content FROM blobs WHERE owner = $1 AND session_id = $2 AND sha256 = b.sha256 OFFSET 0
    ) AS blob WHERE b.owner = $1 AND b.session_id = $2 AND b.seq = messages.seq
) AS large ON true
"""
"""The large strings of each message, by one statement with it. Each is looked up by its key: without statistics
PostgreSQL would join the tables whole."""


async def _read(db: Connection, key: Key, condition: str, values: Sequence[object], *, bodies: bool) -> list[Message]:
    columns = f"{_COLUMNS}, body, paths, contents" if bodies else _COLUMNS
    rows = await db.fetch(
        f"SELECT {columns} FROM messages {_LARGE if bodies else ''} WHERE {OF_SESSION} AND {condition} ORDER BY seq",
        *key,
        *values,
    )
    return await made(lambda row: _message(key[1], row, bodies=bodies), rows)


async def made(make: Callable[[Any], Made], rows: Sequence[Any]) -> list[Made]:
    """What each row is made into: of many rows in a thread, so that other calls need not wait."""
    if len(rows) <= FEW:
        return [make(row) for row in rows]
    return await asyncio.to_thread(lambda: [make(row) for row in rows])


def _message(session_id: str, row: Sequence[Any], *, bodies: bool) -> Message:
    stored = (row[4], list(zip(row[5] or (), row[6] or (), strict=True))) if bodies else None
    return message_of(session_id, _row(row), stored)


def _row(row: Sequence[object]) -> tuple[int, str | None, str, str]:
    seq, key, derived, created = row[0], row[1], row[2], row[3]
    assert isinstance(seq, int)
    return seq, key.decode() if isinstance(key, bytes) else None, str(derived), str(created)


async def find_key(db: Connection, key: Key, name: str) -> int | None:
    """The position of the message that has this key, None if there is none."""
    found: int | None = await db.fetchval(
        f"SELECT seq FROM messages WHERE {OF_SESSION} AND key = $3", *key, name.encode("utf-8", "surrogatepass")
    )
    return found


async def read_outputs(db: Connection, key: Key, first: int, last: int) -> list[Output]:
    """The tool outputs of messages `first..last`, both included, in order."""
    rows = await db.fetch(
        f"SELECT record FROM outputs WHERE {OF_SESSION} AND seq BETWEEN $3 AND $4 ORDER BY seq, block",
        *key,
        first,
        last,
    )
    return await made(lambda row: from_json(Output, row[0]), rows)


async def find_output(db: Connection, owner: str, handle: str, session_id: str | None) -> tuple[str, Output]:
    """The session and output of a handle, the newest session's if several have it. Raises HandleNotFoundError."""
    row = await db.fetchrow(
        "SELECT session_id, record FROM outputs JOIN sessions USING (owner, session_id)"
        " WHERE owner = $1 AND handle = $2 AND ($3::text IS NULL OR session_id = $3)"
        " ORDER BY updated_at DESC LIMIT 1",
        owner,
        handle,
        session_id,
    )
    if row is None:
        raise no_handle(handle, session_id)
    return row[0], from_json(Output, row[1])


async def find_handles(db: Connection, owner: str, prefix: str, limit: int) -> list[str]:
    """The handles that begin with `prefix`, in order."""
    rows = await db.fetch(
        "SELECT DISTINCT handle FROM outputs WHERE owner = $1 AND handle ^@ $2 ORDER BY handle LIMIT $3",
        owner,
        prefix,
        limit,
    )
    return [handle for (handle,) in rows]


async def read_cursor(db: Connection, owner: str, source: str) -> Cursor | None:
    """How far a source has been read; None if it has not been."""
    record = await db.fetchval("SELECT record FROM cursors WHERE owner = $1 AND source = $2 LIMIT 1", owner, source)
    return None if record is None else from_json(Cursor, record)
