"""A session's log: edits, events, model calls, requests and declared parts, each kind numbered from 1.

A row has the JSON of its record, a checksum, and a key if it is found by something else than its number: the id of an
edit's summary, the kind of an event, the reply of a call, the fingerprint of a declared part.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from contextstash_storage.bodies import Stored, damaged, insert_segments, packed, to_bytes, unpacked
from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    Call,
    Counters,
    Declared,
    DeclaredVersion,
    Edit,
    EditRecord,
    Event,
    EventKind,
    Part,
    Record,
    Request,
    RestoreEdit,
    SummaryEdit,
    Usage,
)
from contextstash_storage.rows import checksum, edit_json, edit_of, from_json, group_of, to_json
from contextstash_storage.transaction import MAX_INTEGER, Tx, held, listed, now, only

LogKind = Literal["edit", "event", "call", "request", "declared"]

Stamped = TypeVar("Stamped", EditRecord, Event, Call, Request, DeclaredVersion)


def _stamped(record: Stamped) -> Stamped:
    """The record with the current time if it has none."""
    return record if record.created_at else record.model_copy(update={"created_at": now()})


def put(tx: Tx, row: int, kind: LogKind, rows: Sequence[tuple[int, str | None, str]]) -> None:
    """Store rows (number, key, record), or replace those of these numbers."""
    tx.many(
        "INSERT INTO log (session, kind, number, key, record, checksum) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (session, kind, number) DO UPDATE SET record = excluded.record, checksum = excluded.checksum",
        [
            (row, kind, number, None if key is None else held(key), record, checksum(kind, number, record))
            for number, key, record in rows
        ],
    )


def _append(tx: Tx, row: int, kind: LogKind, key: str | None, record: Record) -> int:
    """Store a record under the next number of its kind, and return that."""
    number = 1 + only(tx.rows("SELECT coalesce(max(number), 0) FROM log WHERE session = ? AND kind = ?", (row, kind)))
    put(tx, row, kind, [(number, key, to_json(record))])
    return int(number)


def _read(
    tx: Tx,
    row: int,
    kind: LogKind,
    condition: str = "number > ?",
    values: Sequence[object] = (0,),
    *,
    limit: int = MAX_INTEGER,
    newest: bool = False,
) -> list[tuple[int, str]]:
    """Numbers and records, oldest or newest first. Raises DamagedError if one is damaged."""
    rows = tx.rows(
        f"SELECT number, record, checksum FROM log WHERE session = ? AND kind = ? AND {condition}"
        f" ORDER BY number {'DESC' if newest else ''} LIMIT ?",
        (row, kind, *values, limit),
    )
    for number, record, noted in rows:
        if noted != checksum(kind, number, record):
            raise damaged(f"{kind} {number}")
    return [(number, record) for number, record, _ in rows]


# Edits


def number_edits(edits: Sequence[Edit], before: int) -> list[EditRecord]:
    """Edits that come after so many others, under their numbers."""
    moment = now()  # one for all: by their time, the edits of one prune or compaction can be undone together
    return [
        edit.model_copy(update={"edit_id": number, "created_at": edit.created_at or moment})
        for number, edit in enumerate(edits, start=before + 1)
    ]


def check_expected(counters: Counters, expected: int) -> None:
    """Raise EditConflictError if a session does not have exactly so many edits."""
    if counters.edits != expected:
        raise EditConflictError("The session's view was edited meanwhile; read it again and plan again.")


_RESTORES = "restores"
"""The key of edits that undo others."""


def put_edits(tx: Tx, row: int, edits: Sequence[EditRecord]) -> None:
    """Store edits under their own numbers."""
    put(tx, row, "edit", [(each.edit_id, _edit_key(each), edit_json(each)) for each in edits])


def _edit_key(edit: EditRecord) -> str | None:
    return edit.summary_id if isinstance(edit, SummaryEdit) else _RESTORES if isinstance(edit, RestoreEdit) else None


def insert_edits(tx: Tx, row: int, counters: Counters, edits: Sequence[EditRecord], *, own: bool) -> Counters:
    """Store numbered edits; returns the counters after them. `own` edits count as `unsent`."""
    put_edits(tx, row, edits)
    counters = _counted(counters, edits, own)
    if any(isinstance(each, RestoreEdit) for each in edits):
        # The index finds the few that matter: to read 10,000 edits here would keep the lock for 0.3 s.
        known = [edit_of(record) for _, record in _read(tx, row, "edit", "key IS NOT NULL", ())]
        counters = counters.model_copy(update={"summary_seq": _last_covered(known)})
    return counters


def _counted(counters: Counters, edits: Sequence[EditRecord], own: bool) -> Counters:
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


def _last_covered(edits: Iterable[EditRecord]) -> int:
    """The last message that a summary in force covers, given the summaries and restores of a session; -1 for none."""
    live: dict[int, int] = {}
    for edit in edits:
        if isinstance(edit, SummaryEdit):
            live[edit.edit_id] = edit.last_seq
        elif isinstance(edit, RestoreEdit):
            for undone in edit.undoes:
                live.pop(undone, None)
    return max(live.values(), default=-1)


def edit_records(tx: Tx, row: int, after: int = 0) -> list[str]:
    """The edits of a session behind number `after`, in order, as stored. Raises DamagedError if one is damaged or
    missing."""
    found = _read(tx, row, "edit", "number > ?", (after,))
    for expected, (number, _) in enumerate(found, start=after + 1):
        if number != expected:
            raise damaged(f"edit {expected} of the view")
    return [record for _, record in found]


def find_summary(tx: Tx, owner: str, summary_id: str, session_id: str | None = None) -> str | None:
    """The session that has a summary with this id, in force or not: the named one, or the one changed last. None if
    there is none."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        "SELECT session_id FROM sessions JOIN log USING (session) WHERE owner = ? AND kind = 'edit' AND key = ?"
        f"{condition} ORDER BY updated_at DESC LIMIT 1",
        (owner, held(summary_id), *values),
    )
    found: str | None = only(rows)
    return found


# Events


def insert_event(tx: Tx, row: int, event: Event) -> None:
    """Store an event, with the current time if it has none."""
    _append(tx, row, "event", event.kind, _stamped(event))


def read_events(tx: Tx, row: int, *, after: int = 0, limit: int = 100) -> list[Event]:
    """Events after the one numbered `after`, oldest first."""
    return [_event(*each) for each in _read(tx, row, "event", "number > ?", (after,), limit=limit)]


def last_events(tx: Tx, row: int, kinds: Sequence[EventKind], limit: int) -> list[Event]:
    """The newest events of these kinds, newest first."""
    found = _read(tx, row, "event", f"key IN {tx.texts}", (listed(kinds),), limit=limit, newest=True)
    return [_event(*each) for each in found]


def _event(number: int, record: str) -> Event:
    return from_json(Event, record).model_copy(update={"event_id": number})


# Calls


def insert_call(tx: Tx, row: int, call: Call, reply: str | None = None) -> None:
    """Store a model call, with the current time if it has none; `reply` is the provider's id of its reply, if it is an
    agent's."""
    _append(tx, row, "call", reply, _stamped(call))


def reports_again(tx: Tx, row: int, reply: str | None, usage: Usage) -> bool:
    """Whether a call with this reply is stored; its usage is replaced by the later report."""
    found = [] if reply is None else _read(tx, row, "call", "key = ?", (held(reply),))
    for number, record in found:
        call = from_json(Call, record).model_copy(update=usage.model_dump())
        put(tx, row, "call", [(number, reply, to_json(call))])
    return bool(found)


def copy_call(tx: Tx, row: int, call: Call) -> None:
    """Store a call of another store, with its reply's id, so that a later report of it finds the call."""
    text = "SELECT facts FROM messages WHERE session = ? AND seq = ?"
    facts = only(tx.rows(text, (row, call.request_seq + 1))) if call.purpose == "agent" else None
    insert_call(tx, row, call, None if facts is None else group_of(facts))


def read_calls(tx: Tx, row: int, *, after: int = 0, limit: int = 100) -> list[Call]:
    """Calls after the one numbered `after`, oldest first."""
    return [_call(*each) for each in _read(tx, row, "call", "number > ?", (after,), limit=limit)]


def last_calls(tx: Tx, row: int, limit: int) -> list[Call]:
    """The newest calls, newest first."""
    return [_call(*each) for each in _read(tx, row, "call", limit=limit, newest=True)]


def call_records(tx: Tx, rows: Iterable[int]) -> list[str]:
    """The records of all calls of these sessions."""
    text = f"SELECT record FROM log WHERE kind = 'call' AND session IN {tx.numbers}"
    return [record for (record,) in tx.rows(text, (listed(rows),))]


def _call(number: int, record: str) -> Call:
    return from_json(Call, record).model_copy(update={"call_id": number})


# Requests

DETAILED_REQUESTS = 8
"""How many of the newest requests keep the names of what was shortened; of older ones only figures are kept. A
late usage report belongs to one of the last few."""


def insert_request(tx: Tx, row: int, counters: Counters, request: Request) -> tuple[Request, Counters]:
    """Store a request under the next number, and make it the newest; returns it and the counters after it."""
    number = counters.requests + 1
    placed = _stamped(request.model_copy(update={"number": number}))
    old = get_request(tx, row, number - DETAILED_REQUESTS)
    figures = [] if old is None else [old.model_copy(update={"left_out": None, "shortened": ()})]
    put_requests(tx, row, [placed, *figures])
    return placed, counters.model_copy(update={"requests": number, "request": placed.sent})


def put_requests(tx: Tx, row: int, placed: Sequence[Request]) -> None:
    """Store requests under their own numbers."""
    put(tx, row, "request", [(each.number, None, to_json(each)) for each in placed])


def book_usage(tx: Tx, row: int, number: int, usage: Usage) -> None:
    """Add the reported usage to a request, if it exists."""
    request = get_request(tx, row, number)
    if request is not None:
        put_requests(tx, row, [request.model_copy(update={"usage": usage})])


def get_request(tx: Tx, row: int, number: int) -> Request | None:
    """The request of this number; None if there is none."""
    found = _read(tx, row, "request", "number = ?", (number,))
    return from_json(Request, found[0][1]) if found else None


def read_requests(tx: Tx, row: int, *, last: int = 1) -> list[Request]:
    """The newest requests, newest first."""
    return [from_json(Request, record) for _, record in _read(tx, row, "request", limit=last, newest=True)]


def list_requests(tx: Tx, row: int, *, after: int = 0, limit: int = 100) -> list[Request]:
    """The requests behind this number, oldest first."""
    return [from_json(Request, record) for _, record in _read(tx, row, "request", "number > ?", (after,), limit=limit)]


# Declared parts: their content, which is long, is a segment of its own, before the messages.


def declare(
    tx: Tx,
    row: int,
    counters: Counters,
    parts: Sequence[DeclaredVersion],
    change: Callable[[Declared, Sequence[int]], Declared],
) -> Counters:
    """Store the parts that are not stored yet; returns the counters with the changed declaration."""
    versions = [_version(tx, row, part) for part in parts]
    return counters.model_copy(update={"declared": change(counters.declared, versions)})


def _version(tx: Tx, row: int, part: DeclaredVersion) -> int:
    known = _read(tx, row, "declared", "key = ?", (_fingerprint(part),))
    if known:
        return known[0][0]
    newest = _read(tx, row, "declared", limit=1, newest=True)
    number = newest[0][0] + 1 if newest else 1
    put_declared(tx, row, _stamped(part.model_copy(update={"version": number})))
    return number


def _fingerprint(part: DeclaredVersion) -> str:
    """What makes two declared parts the same."""
    return hashlib.sha256(part.part.encode() + b"\0" + to_bytes(part.content)).hexdigest()[:32]


def put_declared(tx: Tx, row: int, part: DeclaredVersion) -> None:
    """Store a declared part under its own version."""
    bare = part.model_copy(update={"content": None})
    put(tx, row, "declared", [(part.version, _fingerprint(part), to_json(bare))])
    session, first, count, _, content = packed(row, -part.version, [Stored(to_bytes(part.content))])
    insert_segments(tx, [(session, first, count, 1, content)])


def read_declared(tx: Tx, row: int, versions: Sequence[int] | None = None) -> list[DeclaredVersion]:
    """These versions of the declared parts, or all, in order."""
    found = _read(tx, row, "declared")
    return [_declared(tx, row, *each) for each in found if versions is None or each[0] in versions]


def _declared(tx: Tx, row: int, version: int, record: str) -> DeclaredVersion:
    text = "SELECT first_seq, messages, content FROM bodies WHERE session = ? AND first_seq = ?"
    [segment] = tx.rows(text, (row, -version)) or [(-version, 0, b"")]
    stored = unpacked(row, segment)[-version]
    return from_json(DeclaredVersion, record).model_copy(update={"content": json.loads(stored.body)})


def copy_log(tx: Tx, row: int, records: Iterable[Any]) -> None:
    """Store records of another store under their own numbers."""
    edits = [each for each in records if isinstance(each, EditRecord)]
    put_edits(tx, row, edits)
    for each in records:
        if isinstance(each, Event):
            insert_event(tx, row, each)
        elif isinstance(each, DeclaredVersion):
            put_declared(tx, row, each)
        elif isinstance(each, Call):
            copy_call(tx, row, each)
        elif isinstance(each, Request):
            put_requests(tx, row, [each])
