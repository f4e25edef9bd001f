"""A session's data other than its history, which a copy in another store needs to go on as it would: records alone."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from contextstash_storage.records import CachedSummary, Cursor, ProxiedSession, Record


class StoredBatch(Record):
    """A batch that was stored under an id: `count` messages from `first_seq` on; the fingerprint is hexadecimal."""

    batch_id: str
    first_seq: int
    count: int
    fingerprint: str


class SessionExtras(Record):
    """How far its sources have been read, the ids of its batches, summaries by the hash of what they summarize, and
    what the proxy knows of it."""

    cursors: tuple[Cursor, ...] = ()
    batches: tuple[StoredBatch, ...] = ()
    summaries: Mapping[str, CachedSummary] = Field(default_factory=dict)
    proxied: ProxiedSession | None = None
