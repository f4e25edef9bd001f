"""The health of a database file, looked at without changing it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from contextstash_storage.connection import store_error
from contextstash_storage.hidden_sessions import IS_SEEN
from contextstash_storage.migrations import migrations


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database file. `check` is `ok` or SQLite's first complaint; `newest` is the version that this
    program brings a database to."""

    sessions: int
    version: int
    newest: int
    check: str


def look_at(path: Path) -> Health:
    """Check a database file. Raises StoreError if it can't be read."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as db:
            [check] = db.execute("PRAGMA quick_check(1)").fetchone()
            [version] = db.execute("PRAGMA user_version").fetchone()
            [sessions] = db.execute(f"SELECT count(*) FROM sessions WHERE {IS_SEEN}").fetchone()
    except sqlite3.Error as error:
        raise store_error(error) from error
    return Health(int(sessions), int(version), migrations()[-1][0], str(check))
