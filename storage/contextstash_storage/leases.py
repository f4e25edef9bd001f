"""Leases: the right to be the only process that does something to a session, which ends by itself."""

from __future__ import annotations

import sqlite3
import time


def acquire(db: sqlite3.Connection, session: int, purpose: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease; False where another holder's has not expired. Time is that of the machine's clock, which
    all processes on one database file share."""
    now = time.time()
    taken = db.execute(
        "INSERT INTO leases (session, purpose, holder, expires_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (session, purpose) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at"
        " WHERE leases.holder = excluded.holder OR leases.expires_at <= ?",
        (session, purpose, holder, now + seconds, now),
    )
    return taken.rowcount == 1


def release(db: sqlite3.Connection, session: int, purpose: str, holder: str) -> None:
    """Give a lease back, if it is still this holder's."""
    db.execute("DELETE FROM leases WHERE session = ? AND purpose = ? AND holder = ?", (session, purpose, holder))
