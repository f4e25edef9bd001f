"""Edits: numbered, counted and read, the same for every store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from contextstash_storage.codec.record_json import edit_json, edit_of
from contextstash_storage.codec.segments import damaged
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Counters, Edit, EditRecord, Part, RestoreEdit, SummaryEdit
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Insertion, Key, Statement, Steps, only


@dataclass(frozen=True, slots=True)
class NumberedEdit:
    """An edit under its number, and its row's text."""

    edit: EditRecord
    record: str


def number_edits(edits: Sequence[Edit], before: int) -> list[NumberedEdit]:
    """Make edits that come after so many others ready for their rows; that needs no database."""
    numbered = []
    moment = now()  # one for all: by their time, the edits of one prune or compaction can be undone together
    for number, edit in enumerate(edits, start=before + 1):
        placed = edit.model_copy(update={"edit_id": number, "created_at": edit.created_at or moment})
        numbered.append(NumberedEdit(placed, edit_json(placed)))
    return numbered


def check_expected(counters: Counters, expected: int) -> None:
    """Raise EditConflictError if a session does not have exactly so many edits."""
    if counters.edits != expected:
        raise EditConflictError("The session's view was edited meanwhile; read it again and plan again.")


def put_edits(key: Key, edits: Sequence[NumberedEdit]) -> Steps[None]:
    """Store edits under their own numbers."""
    rows = [
        ({"edit_id": each.edit.edit_id, "record": each.record, "checksum": _checksum(each.record)}, each.edit)
        for each in edits
    ]
    yield Insertion("edits", key, rows)


def _checksum(record: str) -> int:
    return crc32(record.encode("utf-8", "surrogatepass"))


def insert_edits(key: Key, counters: Counters, edits: Sequence[NumberedEdit], *, own: bool) -> Steps[Counters]:
    """Store numbered edits; returns the counters after them. `own` edits count as `unsent`."""
    yield from put_edits(key, edits)
    counters = counted(counters, [each.edit for each in edits], own)
    if any(isinstance(each.edit, RestoreEdit) for each in edits):
        # The database finds the few that matter: to read 10,000 of them here would keep the lock for 0.3 s.
        rows = yield Statement("SELECT record FROM edits WHERE {of} AND {covers} ORDER BY edit_id", key)
        counters = counters.model_copy(update={"summary_seq": last_covered(record for (record,) in rows)})
    return counters


def counted(counters: Counters, edits: Sequence[EditRecord], own: bool) -> Counters:
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


def edit_records(key: Key, after: int) -> Steps[list[str]]:
    """The edits of a session behind number `after`, in order, as stored. Raises StoreError if one is damaged."""
    text = "SELECT edit_id, record, checksum FROM edits WHERE {of} AND edit_id > ? ORDER BY edit_id"
    rows = yield Statement(text, (*key, after))
    for expected, (number, record, checksum) in enumerate(rows, start=after + 1):
        if number != expected or checksum != _checksum(record):
            raise damaged(f"edit {expected} of the view")
    return [record for _, record, _ in rows]


def find_summary(owner: str, summary_id: str, session_id: str | None = None) -> Steps[str | None]:
    """The session that has a summary with this id, in force or not: the named one, or the one changed last. None if
    there is none."""
    named = "" if session_id is None else " AND session_id = ?"
    rows = yield Statement(
        f"SELECT session_id FROM edits JOIN sessions USING ({{key}}) WHERE owner = ? AND {{summary_id}} = ?{named}"
        " ORDER BY updated_at DESC LIMIT 1",
        (owner, summary_id, *([] if session_id is None else [session_id])),
    )
    found: str | None = only(rows)
    return found
