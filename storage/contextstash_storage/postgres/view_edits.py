"""Edits in PostgreSQL, and the counters that are updated with them."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash_storage.codec.record_json import edit_json, edit_of
from contextstash_storage.errors import EditConflictError
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION, run
from contextstash_storage.postgres.messages import made
from contextstash_storage.records import Counters, Edit, EditRecord, RestoreEdit, SummaryEdit
from contextstash_storage.sql.edits import CONFLICT, NumberedEdit, counted, edit_records, last_covered, number_edits
from contextstash_storage.sql.steps import Key

MAX_EDITS = 2**63 - 1
"""More than a session can have: all rows are of edits that count."""


async def read_edits(db: Connection, key: Key, after: int) -> list[Edit]:
    """The edits of a session behind number `after`, in order."""
    return await made(edit_of, await run(db, edit_records(key, after, MAX_EDITS)))


def check_expected(counters: Counters, expected: int) -> None:
    """Raise EditConflictError if a session does not have exactly so many edits."""
    if counters.edits != expected:
        raise EditConflictError(CONFLICT)


async def insert_edits(db: Connection, key: Key, counters: Counters, edits: Sequence[Edit], *, own: bool) -> Counters:
    """Number and store edits; returns the counters after them. `own` edits count as `unsent`."""
    return await insert_numbered(db, key, counters, number_edits(edits, counters.edits), own=own)


async def insert_numbered(
    db: Connection, key: Key, counters: Counters, edits: Sequence[NumberedEdit], *, own: bool
) -> Counters:
    """Store numbered edits; returns the counters after them."""
    await put_edits(db, key, [(each.edit, each.record) for each in edits])
    counters = counted(counters, [each.edit for each in edits], own)
    if any(isinstance(each.edit, RestoreEdit) for each in edits):
        rows = await db.fetch(
            f"SELECT record FROM edits WHERE {OF_SESSION} AND kind IN ('summary', 'restore') ORDER BY edit_id", *key
        )
        counters = counters.model_copy(update={"summary_seq": last_covered(record for (record,) in rows)})
    return counters


async def put_edits(db: Connection, key: Key, edits: Sequence[tuple[EditRecord, str | None]]) -> None:
    """Store edits under their own numbers, each with the text of its row if that is known."""
    await db.executemany(
        "INSERT INTO edits (owner, session_id, edit_id, kind, summary_id, record) VALUES ($1, $2, $3, $4, $5, $6)",
        [
            (
                *key,
                edit.edit_id,
                edit.kind,
                edit.summary_id if isinstance(edit, SummaryEdit) else None,
                edit_json(edit) if record is None else record,
            )
            for edit, record in edits
        ],
    )
