"""The transaction that appends messages: what is there already is skipped, everything else goes in together."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from contextstash_storage.alignment import align
from contextstash_storage.bodies import Blob, Parts, fingerprint, folded, packed_text, take_apart
from contextstash_storage.editing import insert_edits
from contextstash_storage.logs import insert_call
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
from contextstash_storage.rows import derived, from_json, now, session_row, to_json
from contextstash_storage.searching import index_text
from contextstash_storage.store import Count, EditsAfter


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message made ready for its row before the transaction begins."""

    message: NewMessage
    parts: Parts
    fingerprint: bytes
    search_text: bytes | None


def prepare(messages: Sequence[NewMessage]) -> list[Prepared]:
    """Do what needs no database: JSON, hashes, compression."""
    prepared = []
    for message in messages:
        parts = take_apart(message.body)
        text = folded(message.search_text, parts.blobs) if message.search_text else None
        prepared.append(Prepared(message, parts, fingerprint(message.body), text))
    return prepared


class _History:
    """What the database has of a session, for the alignment."""

    def __init__(self, db: sqlite3.Connection, session: int, length: int) -> None:
        self._db = db
        self._session = session
        self.length = length

    @property
    def replay(self) -> int | None:
        [replay] = self._db.execute("SELECT replay_seq FROM sessions WHERE session = ?", (self._session,)).fetchone()
        return None if replay is None else int(replay)

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

    def is_unanswered(self, call_id: str, after: int) -> bool:
        rows = self._db.execute(
            "SELECT derived FROM messages WHERE session = ? AND seq > ? AND instr(derived, ?) ORDER BY seq DESC",
            (self._session, after, json.dumps(call_id, ensure_ascii=False)),
        )
        for (text,) in rows:
            for block in reversed(json.loads(text).get("blocks", ())):
                if block.get("call_id") == call_id:
                    return bool(block["type"] == "tool_call")
        return False


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
    fresh, replay = _fresh(db, row, session, batch)
    counters = session.counters
    stored = []
    for prepared in fresh:
        seq = counters.messages
        stored.append(insert_message(db, row, session_id, seq, prepared))
        if prepared.message.usage is not None:
            _store_call(db, row, prepared.message, session, seq)
        counters = count(counters, prepared.message, seq)
    if edits is not None and stored:
        counters = insert_edits(db, row, counters, edits(counters, tuple(stored)), own=False)
    if cursor is not None:
        _store_cursor(db, owner, row, cursor)
    if stored:
        session = _store_counters(db, row, session, counters, replay)
    elif batch:
        db.execute("UPDATE sessions SET replay_seq = ? WHERE session = ?", (replay, row))
    return Appended(messages=tuple(stored), duplicates=len(batch) - len(stored), session=session)


def _fresh(
    db: sqlite3.Connection, row: int, session: Session, batch: Sequence[Prepared]
) -> tuple[list[Prepared], int | None]:
    """The messages of a batch that are not there yet, and the replay position after it."""
    known = {
        prepared.message.key
        for prepared in batch
        if prepared.message.key is not None
        and db.execute("SELECT 1 FROM messages WHERE session = ? AND key = ?", (row, prepared.message.key)).fetchone()
    }
    fresh: list[Prepared] = []
    unkeyed = [prepared for prepared in batch if prepared.message.key is None]
    aligned = align(
        _History(db, row, session.counters.messages),
        [prepared.fingerprint for prepared in unkeyed],
        [prepared.message for prepared in unkeyed],
    )
    skipped = {id(prepared) for prepared in unkeyed[: aligned.duplicates]}
    for prepared in batch:
        key = prepared.message.key
        if (key is not None and key in known) or id(prepared) in skipped:
            continue
        if key is not None:
            known.add(key)
        fresh.append(prepared)
    return fresh, aligned.replay


def insert_message(db: sqlite3.Connection, row: int, session_id: str, seq: int, prepared: Prepared) -> Message:
    """Store a message at its position, with its outputs and what of it can be found."""
    message = prepared.message
    created = message.created_at or now()
    number = db.execute(
        "INSERT INTO messages (session, seq, fingerprint, key, body, derived, created_at, search_text)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            row,
            seq,
            prepared.fingerprint,
            message.key,
            prepared.parts.rest,
            derived(message),
            created.isoformat(),
            prepared.search_text,
        ),
    ).lastrowid
    assert number is not None
    for place, blob in enumerate(prepared.parts.blobs):
        db.execute(
            "INSERT INTO message_blobs (message, number, path, blob) VALUES (?, ?, ?, ?)",
            (number, place, json.dumps(blob.path), _blob(db, blob)),
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
        "INSERT INTO blobs (sha256, content) VALUES (?, ?)", (blob.sha256, packed_text(blob.text))
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
        (row, handle, seq, output.block, to_json(placed)),
    )


def _store_call(db: sqlite3.Connection, row: int, message: NewMessage, session: Session, seq: int) -> None:
    """Store the model call that a message reports on. A reply recorded in several messages is one call,
    with the last of its reports."""
    usage = message.usage
    assert usage is not None
    stored = db.execute("SELECT record FROM calls WHERE session = ? AND reply = ?", (row, message.group)).fetchone()
    if stored is not None:
        known = from_json(Call, stored[0]).model_copy(update=usage.model_dump())
        db.execute("UPDATE calls SET record = ? WHERE session = ? AND reply = ?", (to_json(known), row, message.group))
        return
    call = Call(
        purpose="agent",
        model=message.model or session.model,
        request_seq=_reply_start(db, row, message.group, seq) - 1,
        request_edits=session.counters.edits,
        created_at=message.created_at,
        **usage.model_dump(),
    )
    insert_call(db, row, call, message.group)


def _reply_start(db: sqlite3.Connection, row: int, group: str | None, seq: int) -> int:
    """The first position of the reply whose part at `seq` is the first that reports usage."""
    if group is None:
        return seq
    rows = db.execute("SELECT seq, derived FROM messages WHERE session = ? AND seq < ? ORDER BY seq DESC", (row, seq))
    for before, text in rows:
        if json.loads(text).get("group") != group:
            break
        seq = before
    return seq


def _store_cursor(db: sqlite3.Connection, owner: str, row: int, cursor: Cursor) -> None:
    db.execute(
        "INSERT INTO cursors (owner, source, session, record) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (owner, source) DO UPDATE SET session = excluded.session, record = excluded.record",
        (owner, cursor.source, row, to_json(cursor)),
    )


def _store_counters(
    db: sqlite3.Connection, row: int, session: Session, counters: Counters, replay: int | None
) -> Session:
    updated = now()
    db.execute(
        "UPDATE sessions SET counters = ?, updated_at = ?, replay_seq = ? WHERE session = ?",
        (to_json(counters), updated.isoformat(), replay, row),
    )
    return session.model_copy(update={"counters": counters, "updated_at": updated})
