"""Numbered migrations: SQL files applied in order, each in a transaction, each once."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from importlib.resources import files

from contextstash_storage.sql.migrations import check_version, migrations_of
from contextstash_storage.sqlite.connection import in_transaction


def migrations() -> list[tuple[int, str]]:
    """Number and SQL of every migration, in order."""
    return migrations_of("contextstash_storage.sqlite")


def _schema_file(name: str) -> str:
    return files("contextstash_storage.sqlite").joinpath("schema", name).read_text(encoding="utf-8")


def migrate(db: sqlite3.Connection, known: Sequence[tuple[int, str]] | None = None) -> None:
    """Bring a database up to date with the migrations `known`, by default all of them, in one transaction.
    Raises StoreVersionError if it is newer than this program."""
    version = _version(db)
    known = migrations() if known is None else known
    newest = known[-1][0]
    check_version(version, newest)
    if version < newest:
        in_transaction(db, lambda db: _apply(db, known))
    note_version(db, newest)


def note_version(db: sqlite3.Connection, version: int) -> None:
    """From now on the connection refuses a database of another version."""
    if hasattr(db, "version"):  # see open_file
        db.version = version


def _apply(db: sqlite3.Connection, known: Sequence[tuple[int, str]]) -> None:
    version = _version(db)  # again: another process may have migrated it meanwhile
    for number, sql in known:
        if number > version:
            _run(db, sql)
            db.execute(f"PRAGMA user_version = {number}")
    if not version and known == migrations():
        _run(db, _schema_file("new_database.sql"))


def _run(db: sqlite3.Connection, sql: str) -> None:
    for statement in _statements(sql):
        db.execute(statement)


def _statements(sql: str) -> list[str]:
    statements: list[str] = []
    pending = ""
    for line in sql.splitlines(keepends=True):
        pending += line
        if sqlite3.complete_statement(pending):
            statements.append(pending)
            pending = ""
    return statements


def _version(db: sqlite3.Connection) -> int:
    [version] = db.execute("PRAGMA user_version").fetchone()
    return int(version)
