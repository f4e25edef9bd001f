"""The health of a database file, looked at without changing it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from contextstash_storage import log, notes
from contextstash_storage.errors import StoreError
from contextstash_storage.messages import messages_between, read_outputs
from contextstash_storage.sessions import HIDDEN_OWNER, read_session
from contextstash_storage.sqlite.database_file import DriverError, FindKey, is_encrypted, no_key, open_file, store_error
from contextstash_storage.sqlite.store import SqliteTx, read_version
from contextstash_storage.transaction import check_version

READ_AT_ONCE = 500
"""Messages that are in memory at a time."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a database file. `check` is `ok` or SQLite's first complaint. `damaged` are the sessions of which
    something cannot be read, and what; all others are whole."""

    sessions: int
    version: int
    check: str
    damaged: tuple[tuple[str, str], ...] = ()
    encrypted: bool = False


def look_at(path: Path, find_key: FindKey = no_key) -> Health:
    """Check a database file. Raises StoreError if it can't be read, also if it is of another version."""
    try:
        with closing(open_file(path, find_key, read_only=True)) as db:
            [check] = db.execute("PRAGMA quick_check(1)").fetchone()
            encrypted = is_encrypted(db)
            version = read_version(db)
            check_version(version)
            tx = SqliteTx(db)
            try:
                sessions = tx.rows("SELECT session_id, owner FROM sessions WHERE owner <> ?", (HIDDEN_OWNER,))
            except DriverError:
                if check == "ok":
                    raise
                sessions = []
            damaged = tuple((name, why) for name, owner in sessions if (why := _damage(tx, owner, name)))
    except (DriverError, UnicodeDecodeError) as error:
        raise store_error(error) from error
    return Health(len(sessions), version, str(check), damaged, encrypted)


def _damage(tx: SqliteTx, owner: str, session_id: str) -> str | None:
    """What of a session cannot be read; None if all of it can."""
    try:
        row, session = read_session(tx, owner, session_id)
        for first in range(0, session.counters.messages, READ_AT_ONCE):
            messages_between(tx, row, session, first, first + READ_AT_ONCE - 1)
        read_outputs(tx, row)
        log.check(tx, row)
        notes.check(tx, row)
    except (StoreError, DriverError, ValueError) as error:
        return str(error)
    return None
