"""A whole session put in as it was elsewhere, in one transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from contextstash_storage.appending import insert_message, prepare
from contextstash_storage.logs import insert_call, insert_event
from contextstash_storage.records import Call, Copied, Edit, Event, NewMessage, Session
from contextstash_storage.rows import session_row, to_json


def copy_in(db: sqlite3.Connection, session: Session, items: Iterable[Copied]) -> Session | None:
    """Store a session that is not there yet, with its counters as they are given; None where it is there. Messages come
    in order and before all else."""
    if not insert_session(db, session):
        return None
    row, _ = session_row(db, session.owner, session.session_id)
    seq = 0
    for item in items:
        if isinstance(item, NewMessage):
            [prepared] = prepare([item])
            insert_message(db, row, session.session_id, seq, prepared)
            seq += 1
        elif isinstance(item, Edit):
            values = (row, item.edit_id, to_json(item))
            db.execute("INSERT INTO edits (session, edit_id, record) VALUES (?, ?, ?)", values)
        elif isinstance(item, Event):
            insert_event(db, row, item)
        else:
            insert_call(db, row, item, _reply_of(db, row, item))
    return session_row(db, session.owner, session.session_id)[1]


def insert_session(db: sqlite3.Connection, session: Session) -> bool:
    """Store a session's row; False where its owner has one of that id."""
    done = db.execute(
        "INSERT INTO sessions (session_id, owner, agent, model, format, title, source, settings,"
        " parent_session_id, created_at, updated_at, counters) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (owner, session_id) DO NOTHING",
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
    return done.rowcount == 1


def _reply_of(db: sqlite3.Connection, row: int, call: Call) -> str | None:
    """The provider's id of the reply to an agent's call, so that a later report of it finds the call."""
    if call.purpose != "agent":
        return None
    found = db.execute(
        "SELECT derived ->> '$.group' FROM messages WHERE session = ? AND seq = ?", (row, call.request_seq + 1)
    ).fetchone()
    return None if found is None else found[0]
