"""Edits in the database, and the counters that are updated with them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Counters, Edit, Part, RestoreEdit, SummaryEdit
from contextstash_storage.sqlite.rows import edit_of, now, to_json

CONFLICT = "The session's view was edited meanwhile; read it again and plan again."

EDITS_AT_ONCE = 1_000
"""More edits than this are stored in several transactions; one of this size takes about 20 ms."""


def read_edits(db: sqlite3.Connection, session: int, count: int, after: int = 0) -> list[Edit]:
    """The edits of a session behind number `after`, in order. Rows beyond its `count` are of edits that are not stored
    to their end."""
    rows = db.execute(
        "SELECT record FROM edits WHERE session = ? AND edit_id > ? AND edit_id <= ? ORDER BY edit_id",
        (session, after, count),
    )
    return [edit_of(record) for (record,) in rows]


@dataclass(frozen=True, slots=True)
class NumberedEdit:
    """An edit under its number, and its row's text."""

    edit: Edit
    record: str


def number_edits(edits: Sequence[Edit], before: int) -> list[NumberedEdit]:
    """Make edits that come after so many others ready for their rows; that needs no database."""
    numbered = []
    moment = now()  # one for all: by their time, the edits of one prune or compaction can be undone together
    for number, edit in enumerate(edits, start=before + 1):
        placed = edit.model_copy(update={"edit_id": number, "created_at": edit.created_at or moment})
        numbered.append(NumberedEdit(placed, to_json(placed)))
    return numbered


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


def counted(counters: Counters, edits: Sequence[Edit], own: bool) -> Counters:
    """The counters after edits, summed up first: a copy for each of 10,000 edits takes 0.3 s."""
    delta = Counter[Part]()
    for edit in edits:
        delta.update(edit.delta)
    changed_by_us = _added(counters.own, delta) if own else counters.own
    if not own and any(isinstance(edit, SummaryEdit) for edit in edits):
        changed_by_us = {}
    covered = [edit.last_seq for edit in edits if isinstance(edit, SummaryEdit)]
    return counters.model_copy(
        update={
            "parts": _added(counters.parts, delta),
            "edits": counters.edits + len(edits),
            "view_messages": counters.view_messages + sum(edit.view_messages for edit in edits),
            "view_results": counters.view_results + sum(edit.view_results for edit in edits),
            "unsent": counters.unsent - sum(delta.values()) * own,
            "own": changed_by_us,
            "summary_seq": max([counters.summary_seq, *covered]),
        }
    )


def _added(parts: Mapping[Part, int], delta: Mapping[Part, int]) -> dict[Part, int]:
    """The tokens by part with the changes; parts of none are left out."""
    added = {part: parts.get(part, 0) + delta.get(part, 0) for part in (*parts, *delta)}
    return {part: tokens for part, tokens in added.items() if tokens}


def _summary_seq(db: sqlite3.Connection, session: int) -> int:
    """The last message that a summary in force covers. SQLite finds the few edits that can matter: to read 10,000 of
    them here would keep the write lock for 0.3 s."""
    rows = db.execute(
        "SELECT record FROM edits WHERE session = ?"
        " AND (instr(record, '\"summary\"') OR instr(record, '\"undoes\"')) ORDER BY edit_id",
        (session,),
    )
    return last_covered(record for (record,) in rows)


def last_covered(records: Iterable[str]) -> int:
    """The last message that a summary in force covers, given at least all summaries and restores of a session in their
    order; -1 for none."""
    live: dict[int, int] = {}
    for record in records:
        edit = edit_of(record)
        if isinstance(edit, SummaryEdit):
            live[edit.edit_id] = edit.last_seq
        elif isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
    return max(live.values(), default=-1)
