"""Leases in SQLite, which end when their time is over."""

from __future__ import annotations

import sqlite3
import time

LIVE = "leases.taken_at <= :now AND :now < leases.taken_at + leases.seconds"
"""Whether a lease is in force. One that seems to be taken in the future is not: it was taken before the machine was
started again, and its holder is gone."""


def clock() -> float:
    """Seconds of the monotonic clock, which all processes of a machine share. The time of day can be set: then a lease
    would end early or never."""
    return time.monotonic()


def acquire(db: sqlite3.Connection, session: int, purpose: str, holder: str, seconds: float) -> bool:
    """Take or renew a lease; False if another holder's is in force."""
    taken = db.execute(
        "INSERT INTO leases (session, purpose, holder, taken_at, seconds)"
        " VALUES (:session, :purpose, :holder, :now, :seconds)"
        " ON CONFLICT (session, purpose) DO UPDATE"
        " SET holder = excluded.holder, taken_at = excluded.taken_at, seconds = excluded.seconds"
        f" WHERE leases.holder = excluded.holder OR NOT ({LIVE})",
        {"session": session, "purpose": purpose, "holder": holder, "now": clock(), "seconds": seconds},
    )
    return taken.rowcount == 1
