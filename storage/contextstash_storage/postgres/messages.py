"""Reads messages and their outputs from PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash_storage.codec.record_json import message_of
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.records import Message
from contextstash_storage.sql.rows import FEW, made
from contextstash_storage.sql.steps import Key

_COLUMNS = "seq, key, derived, created_at"


async def read_range(db: Connection, key: Key, first: int, last: int, *, bodies: bool) -> list[Message]:
    """Messages `first..last`, both included, in order, by one statement if they are few or without bodies."""
    if not bodies:
        condition = f"{OF_SESSION} AND seq BETWEEN $3 AND $4"
        rows = await db.fetch(f"SELECT {_COLUMNS} FROM messages WHERE {condition} ORDER BY seq", *key, first, last)
        return await made(lambda row: message_of(key[1], _row(row), None), rows)
    return await _read(db, key, "seq BETWEEN $3 AND $4", (first, last), are_few=are_few(last - first + 1))


async def read_at(db: Connection, key: Key, seqs: Sequence[int]) -> list[Message]:
    """The messages at these positions, in order of position, by one statement if they are few."""
    return await _read(db, key, "seq = ANY($3)", (list(seqs),), are_few=are_few(len(seqs)))


def are_few(messages: int) -> bool:
    """Whether so many messages are read by one statement: it looks up the large strings of each, which takes 6 µs, and
    another statement for all takes a transaction around both, 0.3 ms."""
    return messages <= 3 * FEW


async def _read(db: Connection, key: Key, condition: str, values: Sequence[object], *, are_few: bool) -> list[Message]:
    large: dict[int, list[tuple[int, str, bytes]]] = {}
    if not are_few:
        found = await db.fetch(_LARGE.format(condition=condition), *key, *values)
        for seq, *string in found:
            large.setdefault(seq, []).append(tuple(string))
    statement = _WITH_LARGE if are_few else _ALONE
    rows = await db.fetch(statement.format(condition=condition), *key, *values)
    if are_few:
        for row in rows:
            large.setdefault(row[0], []).extend([] if row[5] is None else [tuple(row[5:])])
    messages = {row[0]: row for row in rows}
    return await made(lambda row: _with_body(key[1], row, large.get(row[0], ())), list(messages.values()))


_ALONE = f"SELECT {_COLUMNS}, body FROM messages WHERE {OF_SESSION} AND {{condition}} ORDER BY seq"

_LARGE = f"""
SELECT seq, number, path, content FROM message_blobs JOIN blobs USING (owner, session_id, sha256)
WHERE {OF_SESSION} AND {{condition}}
"""

_WITH_LARGE = f"""
SELECT {_COLUMNS}, body, number, path, content FROM messages LEFT JOIN LATERAL (
    SELECT number, path, content FROM message_blobs AS b CROSS JOIN LATERAL (
        SELECT content FROM blobs WHERE owner = $1 AND session_id = $2 AND sha256 = b.sha256 OFFSET 0
    ) AS blob WHERE b.owner = $1 AND b.session_id = $2 AND b.seq = messages.seq OFFSET 0
) AS large ON true
WHERE {OF_SESSION} AND {{condition}} ORDER BY seq
"""
"""A row for each large string of a message; most have one or none."""


def _with_body(session_id: str, row: Sequence[Any], large: Sequence[tuple[int, str, bytes]]) -> Message:
    return message_of(session_id, _row(row), (row[4], [(path, content) for _, path, content in sorted(large)]))


def _row(row: Sequence[object]) -> tuple[int, str | None, str, str]:
    seq, key, derived, created = row[0], row[1], row[2], row[3]
    assert isinstance(seq, int)
    return seq, key.decode() if isinstance(key, bytes) else None, str(derived), str(created)
