"""Reads messages from PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contextstash_storage.codec.record_json import message_of
from contextstash_storage.records import Message
from contextstash_storage.sql.steps import Key, Statement, Steps

LARGE_STRINGS = """ARRAY(
    SELECT ROW (path, content) FROM message_blobs AS b CROSS JOIN LATERAL (
        SELECT content FROM blobs AS c
        WHERE c.owner = b.owner AND c.session_id = b.session_id AND c.sha256 = b.sha256 OFFSET 0
    ) AS blob
    WHERE b.owner = m.owner AND b.session_id = m.session_id AND b.seq = m.seq ORDER BY number
)"""
"""Path and content of the large strings of the message `m`, in their order: 6 µs for each message."""


def message_rows(key: Key, condition: str, *values: object, bodies: bool = True) -> Steps[list[Any]]:
    """The rows of a session's messages that meet a condition, in order."""
    body = f", body, {LARGE_STRINGS}" if bodies else ""
    columns = f"seq, key, derived, created_at{body}"
    return (
        yield Statement(
            f"SELECT {columns} FROM messages AS m WHERE {{of}} AND {condition} ORDER BY seq", (*key, *values)
        )
    )


def stored_message(session_id: str, row: Sequence[Any]) -> Message:
    """The message of a row of `message_rows`."""
    seq, key, derived, created, *stored = row
    name = None if key is None else key.decode()
    return message_of(session_id, (seq, name, derived, created), (stored[0], stored[1]) if stored else None)
