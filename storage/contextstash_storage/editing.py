"""Edits in the database, and the counters kept in step with them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence

from contextstash_storage.records import Counters, Edit, Part
from contextstash_storage.rows import from_json, now, to_json


def read_edits(db: sqlite3.Connection, session: int) -> list[Edit]:
    """All edits of a session, in order."""
    rows = db.execute("SELECT record FROM edits WHERE session = ? ORDER BY edit_id", (session,))
    return [from_json(Edit, record) for (record,) in rows]


def insert_edits(
    db: sqlite3.Connection, session: int, counters: Counters, edits: Sequence[Edit], *, own: bool
) -> Counters:
    """Number and store edits; answers the counters after them. `own` edits count as `unsent`."""
    for edit in edits:
        number = counters.edits + 1
        stored = edit.model_copy(update={"edit_id": number, "created_at": edit.created_at or now()})
        db.execute(
            "INSERT INTO edits (session, edit_id, record) VALUES (?, ?, ?)",
            (session, number, to_json(stored)),
        )
        counters = _counted(counters, stored, own)
    if any(edit.kind in ("summary", "restore") for edit in edits):
        counters = counters.model_copy(update={"summary_seq": _summary_seq(read_edits(db, session))})
    return counters


def _counted(counters: Counters, edit: Edit, own: bool) -> Counters:
    changed_by_us = _added(counters.own, edit.delta) if own else counters.own
    if not own and edit.kind == "summary":
        changed_by_us = {}
    return counters.model_copy(
        update={
            "parts": _added(counters.parts, edit.delta),
            "edits": edit.edit_id,
            "view_messages": counters.view_messages + edit.view_messages,
            "view_results": counters.view_results + edit.view_results,
            "unsent": counters.unsent - sum(edit.delta.values()) * own,
            "own": changed_by_us,
        }
    )


def _added(parts: Mapping[Part, int], delta: Mapping[Part, int]) -> dict[Part, int]:
    """The tokens by part with the changes; parts of none are left out."""
    added = {part: parts.get(part, 0) + delta.get(part, 0) for part in (*parts, *delta)}
    return {part: tokens for part, tokens in added.items() if tokens}


def _summary_seq(edits: Sequence[Edit]) -> int:
    live: dict[int, int] = {}
    for edit in edits:
        if edit.kind == "summary" and edit.last_seq is not None:
            live[edit.edit_id] = edit.last_seq
        for undone in edit.undoes:
            live.pop(undone, None)
    return max(live.values(), default=-1)
