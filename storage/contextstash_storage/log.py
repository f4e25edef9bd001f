"""A session's log: edits, events, model calls, requests and declared parts, each kind numbered from 1.

A row has the JSON of its record, a checksum, and a key if it is found by something else than its number: the id of an
edit's summary, the kind of an event, the reply of a call, the fingerprint of a declared part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import (
    Call,
    Counters,
    Declared,
    DeclaredVersion,
    Edit,
    EditRecord,
    Event,
    Record,
    Request,
    Session,
    SummaryEdit,
    Usage,
    checksum,
    compressed,
    damaged,
    from_json,
    plain,
    to_bytes,
    to_json,
)
from contextstash_storage.sessions import store
from contextstash_storage.transaction import MAX_INTEGER, Tx, listed, name_hash, now, only

Logged = TypeVar("Logged", bound=EditRecord | Event | Call | Request | DeclaredVersion)

_FORMS: dict[type[Record], tuple[str, str]] = {
    EditRecord: ("edit", "edit_id"),
    Event: ("event", "event_id"),
    Call: ("call", "call_id"),
    Request: ("request", "number"),
    DeclaredVersion: ("declared", "version"),
}
"""The name of each kind of record, and the field that has its number."""

_LONG_BYTES = 1_000
"""From this length on, an edit or a declared part is compressed. The words of a summary are in it twice."""


def _key(record: Record) -> str | None:
    """By what a record is found, if not by its number alone; a call's reply is not in it."""
    if isinstance(record, DeclaredVersion):
        content = record.part.encode() + b"\0" + to_bytes(record.content)
        return hashlib.sha256(content).hexdigest()[:32]
    if isinstance(record, Event):
        return str(record.kind)
    return record.summary_id if isinstance(record, SummaryEdit) else None


def _put(tx: Tx, row: int, records: Sequence[Record], reply: str | None = None) -> None:
    """Store records under their numbers, or replace those of these numbers; calls with the id of their reply."""
    rows = []
    for record in records:
        name, field = _FORMS[EditRecord if isinstance(record, EditRecord) else type(record)]
        number, key = getattr(record, field), _key(record) or reply
        stored = to_json(record, type(record).model_fields.keys() - {field}).encode()
        if name in ("edit", "declared") and len(stored) >= _LONG_BYTES:
            stored = compressed(stored)
        key_hash = None if key is None else name_hash(key)
        rows.append((row, name, number, key_hash, stored, checksum(name, number, stored)))
    tx.many(
        "INSERT INTO log (session, kind, number, key, record, checksum) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (session, kind, number) DO UPDATE SET record = excluded.record, checksum = excluded.checksum",
        rows,
    )


def check(tx: Tx, row: int) -> None:
    """Read all of a session's log. Raises DamagedError if something in it is damaged."""
    read_edits(tx, row)
    for kind in _FORMS:
        read_log(tx, row, kind, limit=MAX_INTEGER)  # type: ignore[type-var]


def append_log(tx: Tx, row: int, record: Logged, reply: str | None = None) -> int:
    """Store a record under the next number of its kind, which is returned, with the current time if it has none.
    `reply` is the provider's id of the reply of an agent's model call."""
    name, field = _FORMS[type(record)]
    text = "SELECT coalesce(max(number), 0) FROM log WHERE session = ? AND kind = ?"
    number = 1 + int(only(tx.rows(text, (row, name))))
    stamp = {field: number, "created_at": record.created_at or now()}
    _put(tx, row, [record.model_copy(update=stamp)], reply)
    return number


def read_log(
    tx: Tx,
    row: int,
    kind: type[Logged],
    *,
    numbers: Sequence[int] | None = None,
    keys: Sequence[str] | None = None,
    after: int = 0,
    limit: int = 100,
    newest: bool = False,
) -> list[Logged]:
    """The records of a kind behind the one numbered `after`, oldest or newest first; those with some `numbers` if they
    are given, and of events those of some kinds if they are given as `keys`. Raises DamagedError if one is damaged."""
    name, field = _FORMS[kind]
    condition, values = "session = ? AND kind = ? AND number > ?", [row, name, after]
    if numbers is not None:
        condition += f" AND number IN {tx.numbers}"
        values.append(listed(numbers))
    if keys is not None:
        condition += f" AND key IN {tx.texts}"
        values.append(listed(map(name_hash, keys)))
    order = f"ORDER BY number {'DESC' if newest else ''} LIMIT ?"
    rows = tx.rows(f"SELECT number, record, checksum FROM log WHERE {condition} {order}", (*values, limit))
    for number, record, noted in rows:
        if noted != checksum(name, number, record):
            raise damaged(f"{name} {number}")
    found: list[Any] = [from_json(kind, plain(record).decode()) for _, record, _ in rows]
    return [record.model_copy(update={field: number}) for record, (number, *_) in zip(found, rows, strict=True)]


def insert_edits(tx: Tx, row: int, edits: Sequence[Edit], counters: Counters) -> Counters:
    """Store edits under the next numbers; returns the counters with their number."""
    moment = now()  # one for all: by their time, the edits of one prune or compaction can be undone together
    stamps = enumerate((edit.created_at or moment for edit in edits), start=counters.edits + 1)
    stamped = [{"edit_id": number, "created_at": time} for number, time in stamps]
    _put(tx, row, [edit.model_copy(update=stamp) for edit, stamp in zip(edits, stamped, strict=True)])
    return counters.model_copy(update={"edits": counters.edits + len(edits)})


def append_edits(
    tx: Tx,
    row: int,
    session: Session,
    edits: Sequence[Edit],
    *,
    expected: int,
    change: Callable[[Counters], Counters] = lambda counters: counters,
    event: Event | None = None,
) -> Session:
    """Append edits if the session has exactly `expected` of them, else raise EditConflictError. `change(counters)`
    returns the counters after them (pure)."""
    if session.counters.edits != expected:
        raise EditConflictError("The session's view was edited meanwhile; read it again and plan again.")
    counters = insert_edits(tx, row, edits, change(session.counters))
    return change_counters(tx, row, session, lambda _: counters, logged=event)


def change_counters(
    tx: Tx,
    row: int,
    session: Session,
    change: Callable[[Counters], Counters],
    *,
    logged: Event | Call | None = None,
    booked: tuple[int, Usage] | None = None,
) -> Session:
    """Replace the counters with the result of `change` (pure), which reads them in the same transaction. What is
    `logged` is stored with them, and the usage `booked` to the request of that number."""
    if logged is not None:
        append_log(tx, row, logged)
    if booked is not None:
        book_usage(tx, row, *booked)
    return store(tx, row, session, counters=change(session.counters))


def read_edits(tx: Tx, row: int, *, after: int = 0) -> list[Edit]:
    """The edits behind number `after`, in order. Raises DamagedError if one is damaged or missing."""
    found: list[Any] = read_log(tx, row, EditRecord, after=after, limit=MAX_INTEGER)
    for expected, edit in enumerate(found, start=after + 1):
        if edit.edit_id != expected:
            raise damaged(f"edit {expected} of the view")
    return found


def find_summary(tx: Tx, owner: str, summary_id: str, session_id: str | None = None) -> str | None:
    """The session that has a summary with this id, in force or not: the named one, or the one changed last. None if
    there is none."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        "SELECT session_id FROM sessions JOIN log USING (session) WHERE owner = ? AND kind = 'edit' AND key = ?"
        f"{condition} ORDER BY updated_at DESC LIMIT 1",
        (owner, name_hash(summary_id), *values),
    )
    found: str | None = only(rows)
    return found


def reports_again(tx: Tx, row: int, reply: str | None, usage: Usage) -> bool:
    """Whether a call with this reply is stored; its usage is replaced by the later report."""
    found = [] if reply is None else read_log(tx, row, Call, keys=[reply])
    _put(tx, row, [call.model_copy(update=usage.model_dump()) for call in found], reply)
    return bool(found)


def append_request(tx: Tx, row: int, session: Session, request: Request) -> Request:
    """Store a request under the next number, and make it the one that the next reported usage belongs to."""
    number = session.counters.requests + 1
    placed = request.model_copy(update={"number": number, "created_at": request.created_at or now()})
    _put(tx, row, [placed])
    counters = session.counters.model_copy(update={"requests": number, "request": placed})
    store(tx, row, session, counters=counters)
    return placed


def book_usage(tx: Tx, row: int, number: int, usage: Usage) -> None:
    """Add the reported usage to a request, if it exists."""
    found = read_log(tx, row, Request, numbers=[number])
    _put(tx, row, [request.model_copy(update={"usage": usage}) for request in found])


def declare(
    tx: Tx,
    row: int,
    session: Session,
    parts: Sequence[DeclaredVersion],
    change: Callable[[Declared, Sequence[int]], Declared],
) -> Session:
    """Store versions of declared parts, each content once, and put `change(declared, versions)` into the counters:
    `versions` are the numbers of `parts`. Pure."""
    versions = []
    for part in parts:
        known = read_log(tx, row, DeclaredVersion, keys=[_key(part) or ""])
        versions.append(known[0].version if known else append_log(tx, row, part))
    declared = change(session.counters.declared, versions)
    return store(tx, row, session, counters=session.counters.model_copy(update={"declared": declared}))


def copy_record(
    tx: Tx, row: int, record: EditRecord | Event | Call | DeclaredVersion | Request, reply: str | None = None
) -> None:
    """Store a record of another store: one that was numbered when it was logged under its own number, of a call with
    its `reply`, so that a later report of it finds the call."""
    if isinstance(record, Event | Call):
        append_log(tx, row, record, reply)
    else:
        _put(tx, row, [record])
