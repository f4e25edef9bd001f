"""A few figures of one session, read without opening the store: for a status line, which has milliseconds."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from contextstash_storage.errors import ContextstashError
from contextstash_storage.sqlite.database_file import DriverError, FindKey, no_key, open_file

BUSY_SECONDS = 0.02
"""How long to wait for a lock. A reader of a write-ahead log waits only while another process recovers the file."""


class Glance(NamedTuple):
    """What was done for a session: `outputs` are archived outputs of its hooks, `pruned` the tokens that its last
    request through the proxy did not have to send."""

    handoffs: int = 0
    outputs: int = 0
    pruned: int = 0


def glance(path: Path, session_id: str, outputs_session: str, find_key: FindKey = no_key) -> Glance | None:
    """The figures of a session; None if it, or the database, is not there or cannot be read now."""
    try:
        with closing(open_file(path, find_key, read_only=True, timeout=BUSY_SECONDS)) as db:
            return _read(db, session_id, outputs_session)
    except (DriverError, ContextstashError, ValueError):
        return None


def _read(db: sqlite3.Connection, session_id: str, outputs_session: str) -> Glance | None:
    rows = dict(
        db.execute("SELECT session_id, session FROM sessions WHERE session_id IN (?, ?)", (session_id, outputs_session))
    )
    if not rows:
        return None
    session, archive = rows.get(session_id), rows.get(outputs_session)
    # The parts of one hand-off are events at the same message.
    text = "SELECT record FROM log WHERE session = ? AND kind = 'event' AND key = 'handoff'"
    handoffs = len({json.loads(event).get("seq", 0) for (event,) in db.execute(text, (session,))})
    [outputs] = db.execute("SELECT count(*) FROM outputs WHERE session = ?", (archive,)).fetchone()
    proxied = db.execute("SELECT record FROM notes WHERE session = ? AND kind = 'proxied'", (session,)).fetchone()
    record = json.loads(proxied[0]) if proxied else {}
    return Glance(handoffs, outputs, max(0, record.get("direct_prompt", 0) - record.get("prompt", 0)))
