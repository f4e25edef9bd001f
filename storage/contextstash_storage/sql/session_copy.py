"""Stores what a whole session of another store has besides its messages, unchanged, the same for every store."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from contextstash_storage.codec.record_json import edit_json
from contextstash_storage.records import Call, DeclaredVersion, EditRecord, Event
from contextstash_storage.sql.edits import NumberedEdit, put_edits
from contextstash_storage.sql.logs import copy_call, insert_event
from contextstash_storage.sql.prepared_messages import Prepared, Row
from contextstash_storage.sql.requests import put_declared, put_requests
from contextstash_storage.sql.steps import Key, Steps


def copy_rows(key: Key, rows: Iterable[Row]) -> Steps[None]:
    """Store edits, events, calls, declared parts and requests under their own numbers; edits that follow each other by
    one statement."""
    for are_edits, some in groupby(rows, lambda row: isinstance(row, EditRecord)):
        if are_edits:
            yield from put_edits(
                key, [NumberedEdit(row, edit_json(row)) for row in some if isinstance(row, EditRecord)]
            )
            continue
        for row in some:
            if isinstance(row, Event):
                yield from insert_event(key, row)
            elif isinstance(row, DeclaredVersion):
                yield from put_declared(key, row)
            elif isinstance(row, Call):
                yield from copy_call(key, row)
            elif not isinstance(row, Prepared | EditRecord):
                yield from put_requests(key, [row])
