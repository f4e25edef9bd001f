"""The health of a database file, looked at without changing it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from contextstash_storage.codec.record_json import edit_of
from contextstash_storage.errors import StoreError
from contextstash_storage.sql.edits import edit_records
from contextstash_storage.sql.messages import rows_between
from contextstash_storage.sql.outputs import output_rows
from contextstash_storage.sql.version import check_version
from contextstash_storage.sqlite.connection import run, session_row, store_error
from contextstash_storage.sqlite.database_file import DriverError, FindKey, is_encrypted, no_key, open_file
from contextstash_storage.sqlite.output_rows import output_of
from contextstash_storage.sqlite.rows import IS_SEEN

READ_AT_ONCE = 500
"""Messages that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database file. `check` is `ok` or SQLite's first complaint. `damaged` are the sessions of which
    something cannot be read, and what; all others are whole. `sources` are the files that sessions were read from, each
    with the session and the time of its last change here; `largest` are the sessions with the most tokens, and
    these."""

    sessions: int
    version: int
    check: str
    damaged: tuple[tuple[str, str], ...] = ()
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
            damaged = _damaged(db)
            sources = db.execute(
                f"SELECT source, session_id, updated_at FROM sessions WHERE {IS_SEEN} AND source IS NOT NULL"
                " ORDER BY updated_at DESC"
            ).fetchall()
            largest = db.execute(
                f"SELECT session_id, counters ->> '$.appended' AS tokens FROM sessions WHERE {IS_SEEN}"
                " AND tokens > 0 ORDER BY tokens DESC LIMIT 3"
            ).fetchall()
    except (DriverError, UnicodeDecodeError) as error:
        raise store_error(error) from error
    places = tuple(sources), tuple(largest)
    return Health(int(sessions), int(version), str(check), damaged, *places, encrypted)


def _damaged(db: sqlite3.Connection) -> tuple[tuple[str, str], ...]:
    """The sessions of which something cannot be read, and what."""
    found = []
    for row, session_id, owner in db.execute(
        f"SELECT session, session_id, owner FROM sessions WHERE {IS_SEEN} ORDER BY session"
    ).fetchall():
        try:
            _read_all(db, row, owner, session_id)
        except (StoreError, DriverError, ValueError) as error:
            found.append((session_id, str(error)))
    return tuple(found)


def _read_all(db: sqlite3.Connection, row: int, owner: str, session_id: str) -> None:
    """Read all that a session is made of. Raises what reading the damaged part raises."""
    _, session = session_row(db, owner, session_id)
    for first in range(0, session.counters.messages, READ_AT_ONCE):
        run(db, rows_between((row,), session, first, first + READ_AT_ONCE - 1)).made()
    for edit in run(db, edit_records((row,), 0)):
        edit_of(edit)
    for output in run(db, output_rows((row,), 0, session.counters.messages)):
        output_of(output)
