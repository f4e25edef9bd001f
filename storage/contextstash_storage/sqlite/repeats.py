"""Which messages of a batch are stored already, by what identifies them: a key, a position or the batch's id."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from contextstash_storage.preparation.messages import Prepared, batch_fingerprint
from contextstash_storage.preparation.repeats import (
    Known,
    check_position,
    known_at,
    known_of_id,
    repetitions,
    stored_fingerprint,
)


def known_by_position(
    db: sqlite3.Connection, session: int, length: int, batch: Sequence[Prepared], first_seq: int, done: int
) -> Known:
    """Compare a batch that begins at `first_seq` with what stands there. `done` messages were compared before."""
    check_position(first_seq, length)
    stored = fingerprints(db, session, first_seq + done, max(0, len(batch) - done))
    return known_at(stored, length, batch, first_seq, done)


def known_by_batch_id(
    db: sqlite3.Connection, session: int, length: int, batch: Sequence[Prepared], batch_id: str
) -> Known:
    """How much of the batch of this id is stored."""
    rows = db.execute(
        "SELECT first_seq, count, fingerprint FROM batches WHERE session = ? AND batch_id = ? ORDER BY place",
        (session, batch_id),
    ).fetchall()
    return known_of_id(rows, length, batch, batch_id)


def note_piece(
    db: sqlite3.Connection, session: int, batch_id: str, batch: Sequence[Prepared], place: int, seq: int, count: int
) -> None:
    """Remember that `count` messages of a batch, from the one at `place` on, stand at `seq` and after it."""
    db.execute(
        "INSERT INTO batches (session, batch_id, place, first_seq, count, fingerprint) VALUES (?, ?, ?, ?, ?, ?)",
        (session, batch_id, place, seq, count, batch_fingerprint(batch)),
    )


def has_key(db: sqlite3.Connection, session: int, key: str) -> bool:
    """Whether a message with this key is stored."""
    return db.execute("SELECT 1 FROM messages WHERE session = ? AND key = ?", (session, key)).fetchone() is not None


def looks_repeated(db: sqlite3.Connection, session: int, length: int, batch: Sequence[Prepared]) -> bool:
    """Whether a batch is equal to the newest messages, or begins as the session does. It is stored all the same: only
    its sender knows whether it is a repetition."""
    return any(
        fingerprints(db, session, first, len(marks)) == [stored_fingerprint(mark) for mark in marks]
        for first, marks in repetitions(length, batch)
    )


def fingerprints(db: sqlite3.Connection, session: int, first: int, count: int) -> list[bytes]:
    """The stored fingerprints of at most `count` messages from a position on."""
    rows = db.execute(
        "SELECT fingerprint FROM messages WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq",
        (session, first, first + count),
    )
    return [stored_fingerprint(fingerprint) for (fingerprint,) in rows]
