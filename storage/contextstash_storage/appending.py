"""The transaction that appends messages: what is there already is skipped, everything else goes in together."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash_storage.alignment import Alignment, align
from contextstash_storage.bodies import Blob, fingerprint, packed, take_apart
from contextstash_storage.editing import insert_edits
from contextstash_storage.records import (
    Appended,
    Call,
    Counters,
    Cursor,
    Message,
    NewMessage,
    Output,
    Session,
)
from contextstash_storage.rows import derived, now, session_row
from contextstash_storage.searching import index_text
from contextstash_storage.store import Count, EditsAfter


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message made ready for its row before the transaction begins."""

    message: NewMessage
    fingerprint: bytes
    body: bytes
    blobs: list[Blob]


def prepare(messages: Sequence[NewMessage]) -> list[Prepared]:
    """Do what needs no database: JSON, hashes, compression."""
    return [Prepared(message, fingerprint(message.body), *take_apart(message.body)) for message in messages]


class _History:
    """What the database has of a session, for the alignment."""

    def __init__(self, db: sqlite3.Connection, session: int, length: int, replay: int | None) -> None:
        self._db = db
        self._session = session
        self.length = length
        self.replay = replay

    def fingerprints(self, first: int, count: int) -> list[bytes]:
        rows = self._db.execute(
            "SELECT fingerprint FROM messages WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq",
            (self._session, first, first + count),
        )
        return [mark for (mark,) in rows]

    def places(self, fingerprint: bytes) -> list[int]:
        rows = self._db.execute(
            "SELECT seq FROM messages WHERE session = ? AND fingerprint = ? ORDER BY seq DESC LIMIT 8",
            (self._session, fingerprint),
        )
        return [seq for (seq,) in rows]


def append(
    db: sqlite3.Connection,
    owner: str,
    session_id: str,
    batch: Sequence[Prepared],
    count: Count,
    cursor: Cursor | None,
    edits: EditsAfter | None,
) -> Appended:
    """The whole of an append, within a transaction."""
    row, session = session_row(db, owner, session_id)
    fresh = _fresh(db, row, session, batch)
    counters = session.counters
    stored = []
    for prepared in fresh:
        seq = counters.messages
        stored.append(_insert(db, row, session_id, seq, prepared))
        if prepared.message.usage is not None:
            _insert_call(db, row, prepared.message, session.model, seq)
        counters = count(counters, prepared.message, seq)
    if edits is not None and stored:
        counters = insert_edits(db, row, counters, edits(counters, tuple(stored)), own=False)
    if cursor is not None:
        _store_cursor(db, owner, row, cursor)
    if stored:
        session = _store_counters(db, row, session, counters)
    return Appended(messages=tuple(stored), duplicates=len(batch) - len(stored), session=session)


def _fresh(db: sqlite3.Connection, row: int, session: Session, batch: Sequence[Prepared]) -> list[Prepared]:
    """The messages of a batch that are not there yet."""
    known = {
        prepared.message.key
        for prepared in batch
        if prepared.message.key is not None
        and db.execute("SELECT 1 FROM messages WHERE session = ? AND key = ?", (row, prepared.message.key)).fetchone()
    }
    fresh: list[Prepared] = []
    unkeyed = [prepared for prepared in batch if prepared.message.key is None]
    skipped = {id(prepared) for prepared in unkeyed[: _aligned(db, row, session, unkeyed).duplicates]}
    for prepared in batch:
        key = prepared.message.key
        if (key is not None and key in known) or id(prepared) in skipped:
            continue
        if key is not None:
            known.add(key)
        fresh.append(prepared)
    return fresh


def _aligned(db: sqlite3.Connection, row: int, session: Session, batch: Sequence[Prepared]) -> Alignment:
    if not batch:
        return Alignment(0)
    [replay] = db.execute("SELECT replay_seq FROM sessions WHERE session = ?", (row,)).fetchone()
    history = _History(db, row, session.counters.messages, replay)
    found = align(history, [prepared.fingerprint for prepared in batch], [prepared.message for prepared in batch])
    if found.replay != replay:
        db.execute("UPDATE sessions SET replay_seq = ? WHERE session = ?", (found.replay, row))
    return found


def _insert(db: sqlite3.Connection, row: int, session_id: str, seq: int, prepared: Prepared) -> Message:
    message = prepared.message
    created = message.created_at or now()
    number = db.execute(
        "INSERT INTO messages (session, seq, fingerprint, key, body, derived, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (row, seq, prepared.fingerprint, message.key, prepared.body, derived(message), created.isoformat()),
    ).lastrowid
    assert number is not None
    for blob in prepared.blobs:
        db.execute(
            "INSERT INTO message_blobs (message, path, blob) VALUES (?, ?, ?)",
            (number, json.dumps(blob.path), _blob(db, blob)),
        )
    for output in message.outputs:
        _insert_output(db, row, output, seq)
    if message.search_text:
        index_text(db, number, message.search_text)
    return Message(
        session_id=session_id,
        seq=seq,
        role=message.role,
        kind=message.kind,
        blocks=message.blocks,
        usage=message.usage,
        group=message.group,
        key=message.key,
        created_at=created,
        agent_visible=message.agent_visible,
        user_visible=message.user_visible,
    )


def _blob(db: sqlite3.Connection, blob: Blob) -> int:
    known = db.execute("SELECT blob FROM blobs WHERE sha256 = ?", (blob.sha256,)).fetchone()
    if known is not None:
        return int(known[0])
    number = db.execute(
        "INSERT INTO blobs (sha256, content) VALUES (?, ?)", (blob.sha256, packed(blob.content))
    ).lastrowid
    assert number is not None
    return number


def _insert_output(db: sqlite3.Connection, row: int, output: Output, seq: int) -> None:
    """Store an output under its handle, or under the next free one of that name."""
    handle = output.handle
    copies = 1
    while db.execute("SELECT 1 FROM outputs WHERE session = ? AND handle = ?", (row, handle)).fetchone():
        copies += 1
        handle = f"{output.handle}-{copies}"
    placed = output.model_copy(update={"handle": handle, "seq": seq})
    db.execute(
        "INSERT INTO outputs (session, handle, seq, block, record) VALUES (?, ?, ?, ?, ?)",
        (row, handle, seq, output.block, placed.model_dump_json(exclude_defaults=True)),
    )


def _insert_call(db: sqlite3.Connection, row: int, message: NewMessage, model: str | None, seq: int) -> None:
    usage = message.usage
    assert usage is not None
    call = Call(
        purpose="agent",
        model=message.model or model,
        request_seq=seq - 1,
        created_at=message.created_at or now(),
        **usage.model_dump(),
    )
    db.execute(
        "INSERT INTO calls (session, record) VALUES (?, ?)",
        (row, call.model_dump_json(exclude_defaults=True)),
    )


def _store_cursor(db: sqlite3.Connection, owner: str, row: int, cursor: Cursor) -> None:
    db.execute(
        "INSERT INTO cursors (owner, source, session, record) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (owner, source) DO UPDATE SET session = excluded.session, record = excluded.record",
        (owner, cursor.source, row, cursor.model_dump_json()),
    )


def _store_counters(db: sqlite3.Connection, row: int, session: Session, counters: Counters) -> Session:
    updated = now()
    db.execute(
        "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?",
        (counters.model_dump_json(exclude_defaults=True), updated.isoformat(), row),
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})
