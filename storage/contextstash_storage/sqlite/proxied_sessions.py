"""Rows of sessions whose requests go through the proxy."""

from __future__ import annotations

import sqlite3

from contextstash_storage.records import ProxiedSession
from contextstash_storage.sqlite.rows import from_json, to_json


def read(db: sqlite3.Connection, session: int) -> ProxiedSession | None:
    """What is known of a session's requests; None if none went through the proxy."""
    row = db.execute("SELECT record FROM proxied_sessions WHERE session = ?", (session,)).fetchone()
    return None if row is None else from_json(ProxiedSession, row[0])


def keep(db: sqlite3.Connection, session: int, proxied: ProxiedSession) -> None:
    """Store this in place of what was known before."""
    db.execute(
        "INSERT INTO proxied_sessions (session, last_at, record) VALUES (?, ?, ?)"
        " ON CONFLICT (session) DO UPDATE SET last_at = excluded.last_at, record = excluded.record",
        (session, proxied.last_at, to_json(proxied)),
    )


def recent(db: sqlite3.Connection, owner: str, since: float, limit: int) -> list[tuple[str, ProxiedSession]]:
    """The sessions with requests since a time, by their ids, the newest first."""
    rows = db.execute(
        "SELECT session_id, record FROM proxied_sessions JOIN sessions USING (session)"
        " WHERE owner = ? AND last_at >= ? ORDER BY last_at DESC LIMIT ?",
        (owner, since, limit),
    )
    return [(session_id, from_json(ProxiedSession, record)) for session_id, record in rows]
