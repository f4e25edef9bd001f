"""A session's log: edits, events, model calls, requests and declared parts, each kind numbered from 1.

A row has the JSON of its record, a checksum, and a key if it is found by something else than its number: the id of an
edit's summary, the kind of an event, the reply of a call, the fingerprint of a declared part.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from contextstash_storage import records
from contextstash_storage.errors import EditConflictError
from contextstash_storage.sessions import store
from contextstash_storage.transaction import MAX_INTEGER, Tx, listed, name_hash, now, only

Logged = TypeVar(
    "Logged", bound=records.EditRecord | records.Event | records.Call | records.Request | records.DeclaredVersion
)

_FORMS: dict[type[records.Record], tuple[str, str]] = {
    records.EditRecord: ("edit", "edit_id"),
    records.Event: ("event", "event_id"),
    records.Call: ("call", "call_id"),
    records.Request: ("request", "number"),
    records.DeclaredVersion: ("declared", "version"),
}
"""The name of each kind of record, and the field that has its number."""

_LONG_BYTES = 1_000
"""From this length on, an edit or a declared part is compressed. The words of a summary are in it twice."""


def _key(record: records.Record) -> str | None:
    """By what a record is found, if not by its number alone; a call's reply is not in it."""
    if isinstance(record, records.DeclaredVersion):
        content = record.part.encode() + b"\0" + records.to_bytes(record.content)
        return hashlib.sha256(content).hexdigest()[:32]
    if isinstance(record, records.Event):
        return str(record.kind)
    return record.summary_id if isinstance(record, records.SummaryEdit) else None


Prepared = tuple[int, str, str | None, bytes]
"""A record made ready for its row: its number, the name of its kind, the hash of its key, and its JSON."""


def _prepared(record: records.Record, reply: str | None = None) -> Prepared:
    name, field = _FORMS[records.EditRecord if isinstance(record, records.EditRecord) else type(record)]
    key = _key(record) or reply
    stored = records.to_json(record, type(record).model_fields.keys() - {field}).encode()
    if name in ("edit", "declared") and len(stored) >= _LONG_BYTES:
        stored = records.compressed(stored)
    return getattr(record, field), name, None if key is None else name_hash(key), stored


def _insert(tx: Tx, row: int, new: Sequence[Prepared]) -> None:
    tx.many(
        "INSERT INTO log (session, number, kind, key, record, checksum) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (session, kind, number) DO UPDATE SET record = excluded.record, checksum = excluded.checksum",
        [(row, *each, records.checksum(each[1], each[0], each[3])) for each in new],
    )


def put(tx: Tx, row: int, new: Sequence[records.Record], reply: str | None = None) -> None:
    """Store records under their numbers, or in place of those of these numbers; calls with the id of their reply."""
    _insert(tx, row, [_prepared(record, reply) for record in new])


def check(tx: Tx, row: int, session: records.Session) -> None:
    """Read all of a session's log. Raises DamagedError if something in it is damaged."""
    read_edits(tx, row, session)
    for kind in _FORMS:
        read_log(tx, row, kind, limit=MAX_INTEGER)  # type: ignore[type-var]


def append_log(tx: Tx, row: int, record: Logged, reply: str | None = None) -> int:
    """Store a record under the next number of its kind, which is returned, with the current time if it has none.
    `reply` is the provider's id of the reply of an agent's model call."""
    name, field = _FORMS[type(record)]
    text = "SELECT coalesce(max(number), 0) FROM log WHERE session = ? AND kind = ?"
    number = 1 + int(only(tx.rows(text, (row, name))))
    stamp = {field: number, "created_at": record.created_at or now()}
    put(tx, row, [record.model_copy(update=stamp)], reply)
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
    found: list[Any] = []
    for number, stored, noted in rows:
        if noted != records.checksum(name, number, stored):
            raise records.damaged(f"{name} {number}")
        record = records.from_json(kind, records.plain(stored).decode())
        found.append(record.model_copy(update={field: number}))
    return found


def prepared_edits(edits: Sequence[records.Edit], after: int) -> list[Prepared]:
    """New edits with the numbers behind this one, and the current time if they have none."""
    moment = now()  # one for all: by their time, the edits of one prune or compaction can be undone together
    stamps = enumerate((edit.created_at or moment for edit in edits), start=after + 1)
    stamped = ({"edit_id": number, "created_at": time} for number, time in stamps)
    return [_prepared(edit.model_copy(update=stamp)) for edit, stamp in zip(edits, stamped, strict=True)]


def insert_edits(tx: Tx, row: int, edits: Sequence[Prepared], counters: records.Counters) -> records.Counters:
    """Store edits that have the next numbers; returns the counters with their number."""
    _insert(tx, row, edits)
    return counters.model_copy(update={"edits": counters.edits + len(edits)})


def change_session(
    tx: Tx,
    row: int,
    session: records.Session,
    change: Callable[[records.Counters], records.Counters] = lambda counters: counters,
    *,
    edits: Sequence[Prepared] = (),
    expected: int | None = None,
    logged: records.Event | records.Call | None = None,
    booked: tuple[int, records.Usage] | None = None,
) -> records.Session:
    """Append edits if the session has exactly `expected` of them, else raise EditConflictError; replace the counters
    with the result of `change` (pure), which reads them in the same transaction. What is `logged` is stored with them,
    and the usage `booked` to the request of that number."""
    if expected not in (None, session.counters.edits):
        raise EditConflictError("The session's view was edited meanwhile; read it again and plan again.")
    counters = insert_edits(tx, row, edits, change(session.counters))
    if logged is not None:
        append_log(tx, row, logged)
    if booked is not None:
        book_usage(tx, row, *booked)
    return store(tx, row, session, counters=counters)


def read_edits(tx: Tx, row: int, session: records.Session, *, after: int = 0) -> list[records.Edit]:
    """The edits behind number `after`, in order. Raises DamagedError if one is damaged or missing."""
    found: list[Any] = read_log(tx, row, records.EditRecord, after=after, limit=MAX_INTEGER)
    if missing := set(range(after + 1, session.counters.edits + 1)) - {edit.edit_id for edit in found}:
        raise records.damaged(f"edit {min(missing)} of the view")
    return found


def find_summary(tx: Tx, owner: str, summary_id: str, session_id: str | None = None) -> str | None:
    """The session that has a summary with this id, in force or not: the named one, or the one changed last."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        "SELECT session_id FROM sessions JOIN log USING (session) WHERE owner = ? AND kind = 'edit' AND key = ?"
        f"{condition} ORDER BY updated_at DESC LIMIT 1",
        (owner, name_hash(summary_id), *values),
    )
    found: str | None = only(rows)
    return found


def append_request(tx: Tx, row: int, session: records.Session, request: records.Request) -> records.Request:
    """Store a request under the next number, and make it the one that the next reported usage belongs to."""
    number = session.counters.requests + 1
    placed = request.model_copy(update={"number": number, "created_at": request.created_at or now()})
    put(tx, row, [placed])
    counters = session.counters.model_copy(update={"requests": number, "request": placed})
    store(tx, row, session, counters=counters)
    return placed


def book_usage(tx: Tx, row: int, number: int, usage: records.Usage) -> None:
    """Add the reported usage to a request, if it exists."""
    found = read_log(tx, row, records.Request, numbers=[number])
    put(tx, row, [request.model_copy(update={"usage": usage}) for request in found])


def declare(
    tx: Tx,
    row: int,
    session: records.Session,
    parts: Sequence[records.DeclaredVersion],
    change: Callable[[records.Declared, Sequence[int]], records.Declared],
) -> records.Session:
    """Store versions of declared parts, each content once, and put `change(declared, versions)` into the counters:
    `versions` are the numbers of `parts`. Pure."""
    versions = []
    for part in parts:
        known = read_log(tx, row, records.DeclaredVersion, keys=[_key(part) or ""])
        versions.append(known[0].version if known else append_log(tx, row, part))
    declared = change(session.counters.declared, versions)
    return store(tx, row, session, counters=session.counters.model_copy(update={"declared": declared}))
