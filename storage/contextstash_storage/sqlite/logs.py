"""Sums of messages in SQLite, and leases, which end when their time is over."""

from __future__ import annotations

import sqlite3
import time
from collections import Counter

from contextstash_storage.codec.record_json import tokens_of
from contextstash_storage.records import BlockType, Kind, Role, TokenSum


def token_sums(db: sqlite3.Connection, session: int, width: int) -> list[TokenSum]:
    """Tokens by run of messages, role, kind and type of block."""
    sums: Counter[tuple[int, Role, Kind, BlockType]] = Counter()
    for seq, derived in db.execute("SELECT seq, derived FROM messages WHERE session = ?", (session,)):
        role, kind, blocks = tokens_of(derived)
        for name, tokens in blocks:
            sums[seq // width, role, kind, name] += tokens
    return [
        TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens)
        for (run, role, kind, name), tokens in sums.items()
    ]


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
