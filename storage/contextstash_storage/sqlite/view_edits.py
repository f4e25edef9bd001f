"""Edits in the database, and the counters that are updated with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from contextstash_storage.codec.record_json import edit_of
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Counters, Edit, RestoreEdit
from contextstash_storage.sql.edits import CONFLICT, NumberedEdit, counted, edit_records, last_covered, number_edits
from contextstash_storage.sqlite.dialect import run

EDITS_AT_ONCE = 1_000
"""More edits than this are stored in several transactions; one of this size takes about 20 ms."""


def edits_of(db: sqlite3.Connection, session: int, counters: Counters, after: int = 0) -> list[Edit]:
    """The edits of a session behind number `after`, in order. Rows beyond those that its counters count are of edits
    that are not stored to their end."""
    return [edit_of(record) for record in run(db, edit_records((session,), after, counters.edits))]


def insert_edits(
    db: sqlite3.Connection, session: int, counters: Counters, edits: Sequence[Edit], *, own: bool
) -> Counters:
    """Number and store edits; returns the counters after them. `own` edits count as `unsent`."""
    return insert_numbered(db, session, counters, number_edits(edits, counters.edits), own=own)


def insert_numbered(
    db: sqlite3.Connection, session: int, counters: Counters, edits: Sequence[NumberedEdit], *, own: bool
) -> Counters:
    """Store numbered edits; returns the counters after them."""
    _remove_staged(db, session, counters)
    _insert(db, session, edits)
    return count_edits(db, session, counters, edits, own=own)


def stage_piece(
    db: sqlite3.Connection, session: int, counters: Counters, edits: Sequence[NumberedEdit], done: int
) -> int:
    """Store the next of many edits, of which `done` are stored. Readers do not see them, because their numbers are
    above the session's count. Returns how many are stored then. Raises EditConflictError if other edits were stored
    meanwhile."""
    if done:
        check_staged(db, session, edits[done - 1])
    else:
        _remove_staged(db, session, counters)
    _insert(db, session, edits[done : done + EDITS_AT_ONCE])
    return min(done + EDITS_AT_ONCE, len(edits))


def check_staged(db: sqlite3.Connection, session: int, last: NumberedEdit) -> None:
    """Raise EditConflictError unless the last edit that was staged is there. Whoever stores edits removes those that
    others have staged, all of them; the time in an edit's text tells equal ones apart."""
    place = (session, last.edit.edit_id)
    found = db.execute("SELECT record FROM edits WHERE session = ? AND edit_id = ?", place).fetchone()
    if found is None or found[0] != last.record:
        raise EditConflictError(CONFLICT)


def count_edits(
    db: sqlite3.Connection, session: int, counters: Counters, edits: Sequence[NumberedEdit], *, own: bool
) -> Counters:
    """The counters after these edits, which are stored."""
    counters = counted(counters, [each.edit for each in edits], own)
    if any(isinstance(each.edit, RestoreEdit) for each in edits):
        counters = counters.model_copy(update={"summary_seq": _summary_seq(db, session)})
    return counters


def _remove_staged(db: sqlite3.Connection, session: int, counters: Counters) -> None:
    db.execute("DELETE FROM edits WHERE session = ? AND edit_id > ?", (session, counters.edits))


def _insert(db: sqlite3.Connection, session: int, edits: Sequence[NumberedEdit]) -> None:
    db.executemany(
        "INSERT INTO edits (session, edit_id, record) VALUES (?, ?, ?)",
        [(session, each.edit.edit_id, each.record) for each in edits],
    )


def _summary_seq(db: sqlite3.Connection, session: int) -> int:
    """The last message that a summary in force covers. SQLite finds the few edits that can matter: to read 10,000 of
    them here would keep the write lock for 0.3 s."""
    rows = db.execute(
        "SELECT record FROM edits WHERE session = ?"
        " AND (instr(record, '\"summary\"') OR instr(record, '\"undoes\"')) ORDER BY edit_id",
        (session,),
    )
    return last_covered(record for (record,) in rows)
