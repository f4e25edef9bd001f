"""The health of a database file, looked at without changing it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from contextstash_storage.codec.bodies import OF_SESSION
from contextstash_storage.sql.version import check_version
from contextstash_storage.sqlite.connection import store_error
from contextstash_storage.sqlite.database_file import FindKey, driver_errors, is_encrypted, no_key, open_file
from contextstash_storage.sqlite.dictionaries import dictionary_of
from contextstash_storage.sqlite.rows import BODY, IS_SEEN


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database file. `check` is `ok` or SQLite's first complaint. Of `damaged` sessions some messages
    cannot be decompressed. `sources` are the files that sessions were read from, each with the session and the time of
    its last change here; `largest` are the sessions with the most tokens, and these."""

    sessions: int
    version: int
    check: str
    damaged: int = 0
    sources: tuple[tuple[str, str, str], ...] = ()
    largest: tuple[tuple[str, int], ...] = ()
    encrypted: bool = False


def look_at(path: Path, find_key: FindKey = no_key) -> Health:
    """Check a database file. Raises StoreError if it can't be read, also if it is of another version."""
    try:
        with closing(open_file(path, find_key, read_only=True)) as db:
            [check] = db.execute("PRAGMA quick_check(1)").fetchone()
            encrypted = is_encrypted(db)
            [version] = db.execute("PRAGMA user_version").fetchone()
            check_version(int(version))
            [sessions] = db.execute(f"SELECT count(*) FROM sessions WHERE {IS_SEEN}").fetchone()
            damaged = _without_dictionary(db) if check == "ok" else 0
            sources = db.execute(
                f"SELECT source, session_id, updated_at FROM sessions WHERE {IS_SEEN} AND source IS NOT NULL"
                " ORDER BY updated_at DESC"
            ).fetchall()
            largest = db.execute(
                f"SELECT session_id, counters ->> '$.appended' AS tokens FROM sessions WHERE {IS_SEEN}"
                " AND tokens > 0 ORDER BY tokens DESC LIMIT 3"
            ).fetchall()
    except driver_errors() as error:
        raise store_error(error) from error
    places = tuple(sources), tuple(largest)
    return Health(int(sessions), int(version), str(check), damaged, *places, encrypted)


def _without_dictionary(db: sqlite3.Connection) -> int:
    """How many sessions have messages that need a dictionary which is missing or damaged."""
    in_need = (
        "SELECT DISTINCT session FROM messages JOIN sessions USING (session)"
        f" WHERE {IS_SEEN} AND substr({BODY}, 1, 1) = ?"
    )
    return sum(dictionary_of(db, session) is None for (session,) in db.execute(in_need, (OF_SESSION,)).fetchall())
