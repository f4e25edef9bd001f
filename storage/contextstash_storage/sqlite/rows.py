"""Reads rows of the database: the time of a message, and whether a session is seen."""

from __future__ import annotations

from contextstash_storage.codec.record_json import to_json
from contextstash_storage.records import Counters, Session
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Statement, Steps

_MICROSECONDS = "(messages.created_at % 1000000 + 1000000) % 1000000"

TIME_TEXT = (
    "CASE typeof(messages.created_at) WHEN 'text' THEN messages.created_at ELSE"
    f" strftime('%Y-%m-%dT%H:%M:%S', (messages.created_at - {_MICROSECONDS}) / 1000000, 'unixepoch')"
    f" || iif({_MICROSECONDS}, printf('.%06d', {_MICROSECONDS}), '') || '+00:00' END"
)
"""The time of a message as the text that datetime.isoformat() writes, which can be compared with those of sessions."""

DELETED_OWNER = "\x1fdeleted"
"""The owner of sessions that are being deleted. No user's name contains a control character."""

STAGED_OWNER = "\x1fstaged"
"""The owner of sessions that are being imported."""

IS_SEEN = f"owner NOT IN ('{DELETED_OWNER}', '{STAGED_OWNER}')"


def store_counters(key: Key, session: Session, counters: Counters) -> Steps[Session]:
    """Store a session's counters and that it was changed now; returns the changed session."""
    updated = now()
    text = "UPDATE sessions SET counters = ?, updated_at = ? WHERE session = ?"
    yield Statement(text, (to_json(counters), updated.isoformat(), *key))
    return session.model_copy(update={"counters": counters, "updated_at": updated})
