"""Stores a whole imported session unchanged, in pieces that stay invisible until the last one is stored."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from contextstash_storage.codec.record_json import to_json
from contextstash_storage.errors import StoreBusyError
from contextstash_storage.records import Session
from contextstash_storage.sql.prepared_messages import Prepared, Row
from contextstash_storage.sql.session_copy import copy_rows
from contextstash_storage.sql.steps import Statement, Steps
from contextstash_storage.sqlite.append_messages import MessageWriter
from contextstash_storage.sqlite.connection import PIECE_SECONDS, run, session_row
from contextstash_storage.sqlite.hidden_sessions import STAGING, give_up, new_holder
from contextstash_storage.sqlite.leases import acquire
from contextstash_storage.sqlite.rows import STAGED_OWNER

LEASE_SECONDS = 600.0
"""How long the lines of an import may take to come, as from a pipe, before it counts as abandoned."""


@dataclass(slots=True)
class Staged:
    """An import that is under way: the row of its hidden session, and the position of the next message."""

    row: int
    holder: str
    session: Session
    seq: int = 0

    def advance(self, written: Iterable[Row]) -> None:
        """Go on behind these rows, now that they are committed."""
        self.seq += sum(isinstance(row, Prepared) for row in written)


def begin(db: sqlite3.Connection, session: Session) -> Staged | None:
    """Begin to store a session; None if it exists already."""
    if _is_there(db, session.owner, session.session_id):
        return None
    holder = new_holder()
    run(db, insert_session(session.model_copy(update={"owner": STAGED_OWNER, "session_id": holder})))
    row, _ = session_row(db, STAGED_OWNER, holder)
    acquire(db, row, STAGING, holder, LEASE_SECONDS)
    return Staged(row, holder, session)


def write_piece(db: sqlite3.Connection, staged: Staged, rows: deque[Row]) -> int:
    """Store the first of these rows, as many as fit into a piece's time; returns how many. Messages come in order and
    before all else. Raises StoreBusyError if the import has been given up for dead meanwhile."""
    _renew(db, staged)
    until = time.monotonic() + PIECE_SECONDS
    writer = MessageWriter(db, staged.row, staged.session.session_id, staged.seq)
    seq, written = staged.seq, 0
    for row in rows:
        if isinstance(row, Prepared):
            run(db, writer.add(seq, row))
            seq += 1
        else:
            run(db, copy_rows((staged.row,), [row]))
        written += 1
        if time.monotonic() > until:
            break
    run(db, writer.flush())
    return written


def publish(db: sqlite3.Connection, staged: Staged) -> Session | None:
    """Make a session that is stored to its end visible; None if one of that id has come meanwhile."""
    _renew(db, staged)
    session = staged.session
    if _is_there(db, session.owner, session.session_id):
        give_up(db, staged.row)
        return None
    db.execute("DELETE FROM leases WHERE session = ?", (staged.row,))
    db.execute(
        "UPDATE sessions SET owner = ?, session_id = ? WHERE session = ?",
        (session.owner, session.session_id, staged.row),
    )
    return session_row(db, session.owner, session.session_id)[1]


def abandon(db: sqlite3.Connection, staged: Staged) -> None:
    """Hand over to the deletion what is stored so far, if it is not visible yet."""
    if _is_there(db, STAGED_OWNER, staged.holder):
        give_up(db, staged.row)


def insert_session(session: Session) -> Steps[bool]:
    """Store a session's row; False if its owner has one of that id."""
    rows = yield Statement(
        "INSERT INTO sessions (session_id, owner, agent, model, format, title, source, settings,"
        " parent_session_id, created_at, updated_at, counters) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (owner, session_id) DO NOTHING RETURNING 1",
        (
            session.session_id,
            session.owner,
            session.agent,
            session.model,
            session.format,
            session.title,
            session.source,
            json.dumps(dict(session.settings)),
            session.parent_session_id,
            session.created_at.isoformat(),
            session.updated_at.isoformat(),
            to_json(session.counters),
        ),
    )
    return bool(rows)


def _is_there(db: sqlite3.Connection, owner: str, session_id: str) -> bool:
    found = db.execute("SELECT 1 FROM sessions WHERE owner = ? AND session_id = ?", (owner, session_id))
    return found.fetchone() is not None


def _renew(db: sqlite3.Connection, staged: Staged) -> None:
    if not _is_there(db, STAGED_OWNER, staged.holder):
        raise StoreBusyError(
            "The import took so long that another process removed it as abandoned; nothing was stored. Import it again."
        )
    acquire(db, staged.row, STAGING, staged.holder, LEASE_SECONDS)
