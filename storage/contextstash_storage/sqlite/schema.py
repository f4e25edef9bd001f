"""The tables of a database file, made by the first process that opens it."""

from __future__ import annotations

import sqlite3
from importlib.resources import files

from contextstash_storage.sql.version import VERSION, check_version
from contextstash_storage.sqlite.connection import in_transaction


def make_tables(db: sqlite3.Connection) -> None:
    """Make the tables of a new database. Raises StoreVersionError for a database of another version."""
    version = read_version(db)
    check_version(version)
    if not version:
        in_transaction(db, _make)
    note_version(db, VERSION)


def note_version(db: sqlite3.Connection, version: int) -> None:
    """From now on the connection refuses a database of another version."""
    if hasattr(db, "version"):  # see open_file
        db.version = version


def read_version(db: sqlite3.Connection) -> int:
    """The version of a database, 0 if it has no tables."""
    [version] = db.execute("PRAGMA user_version").fetchone()
    return int(version)


def _make(db: sqlite3.Connection) -> None:
    if read_version(db):  # another process was faster
        return
    pending = ""
    for line in files("contextstash_storage.sqlite").joinpath("schema.sql").read_text(encoding="utf-8").splitlines():
        pending += line + "\n"
        if sqlite3.complete_statement(pending):
            db.execute(pending)
            pending = ""
    db.execute(f"PRAGMA user_version = {VERSION}")
