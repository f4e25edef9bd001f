"""A session's log: events, model calls, summaries written before, and leases that are released."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash_storage.codec.record_json import from_json, group_of, to_json
from contextstash_storage.records import CachedSummary, Call, Event, EventKind, Usage
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Insertion, Key, Name, Statement, Steps, marks, only


def insert_event(key: Key, event: Event) -> Steps[None]:
    """Store an event, with the current time if it has none."""
    stamped = event.model_copy(update={"created_at": event.created_at or now()})
    text = "INSERT INTO events ({key}, kind, record) VALUES ({keys}, ?, ?)"
    yield Statement(text, (*key, stamped.kind, to_json(stamped)))


def read_events(key: Key, *, after: int = 0, limit: int = 100) -> Steps[list[Event]]:
    """Events after the one numbered `after`, oldest first."""
    rows = yield Statement(
        "SELECT event_id, record FROM events WHERE {of} AND event_id > ? ORDER BY event_id LIMIT ?",
        (*key, after, limit),
    )
    return [_event(number, record) for number, record in rows]


def last_events(key: Key, kinds: Sequence[EventKind], limit: int) -> Steps[list[Event]]:
    """The newest events of these kinds, newest first."""
    if not kinds:
        return []
    rows = yield Statement(
        f"SELECT event_id, record FROM events WHERE {{of}} AND kind IN ({marks(kinds)}) ORDER BY event_id DESC LIMIT ?",
        (*key, *kinds, limit),
    )
    return [_event(number, record) for number, record in rows]


def _event(number: int, record: str) -> Event:
    return from_json(Event, record).model_copy(update={"event_id": number})


def insert_call(key: Key, call: Call, reply: str | None = None, number: int | None = None) -> Steps[None]:
    """Store a model call, with the current time if it has none; `reply` is the provider's id of its reply, if it is an
    agent's, and `number` its own if it was stored before."""
    stamped = call.model_copy(update={"created_at": call.created_at or now()})
    columns: dict[str, object] = {"reply": None if reply is None else Name(reply), "record": to_json(stamped)}
    if number is not None:
        columns["call_id"] = number
    yield Insertion("calls", key, [(columns, stamped)])


def reports_again(key: Key, reply: str | None, usage: Usage) -> Steps[bool]:
    """Whether a call with this reply is stored; its usage is replaced by the later report."""
    if reply is None:
        return False
    rows = yield Statement("SELECT call_id, record FROM calls WHERE {of} AND reply = ?", (*key, Name(reply)))
    for number, record in rows:
        yield Statement("DELETE FROM calls WHERE {of} AND call_id = ?", (*key, number))
        call = from_json(Call, record).model_copy(update=usage.model_dump())
        yield from insert_call(key, call, reply, number)
    return bool(rows)


def copy_call(key: Key, call: Call) -> Steps[None]:
    """Store a call of another store, with its reply's id, so that a later report of it finds the call."""
    text = "SELECT derived FROM messages WHERE {of} AND seq = ?"
    rows = (yield Statement(text, (*key, call.request_seq + 1))) if call.purpose == "agent" else []
    yield from insert_call(key, call, group_of(rows[0][0]) if rows else None)


def read_calls(key: Key, *, after: int = 0, limit: int = 100) -> Steps[list[Call]]:
    """Calls after the one numbered `after`, oldest first."""
    rows = yield Statement(
        "SELECT call_id, record FROM calls WHERE {of} AND call_id > ? ORDER BY call_id LIMIT ?", (*key, after, limit)
    )
    return [_call(number, record) for number, record in rows]


def last_calls(key: Key, limit: int) -> Steps[list[Call]]:
    """The newest calls, newest first."""
    rows = yield Statement("SELECT call_id, record FROM calls WHERE {of} ORDER BY call_id DESC LIMIT ?", (*key, limit))
    return [_call(number, record) for number, record in rows]


def _call(number: int, record: str) -> Call:
    return from_json(Call, record).model_copy(update={"call_id": number})


def get_cached_summary(key: Key, content: str) -> Steps[CachedSummary | None]:
    """A summary written before for the same content, of which this is a hash."""
    rows = yield Statement("SELECT record FROM cached_summaries WHERE {of} AND key = ?", (*key, content))
    return from_json(CachedSummary, rows[0][0]) if rows else None


def put_cached_summary(key: Key, content: str, summary: CachedSummary) -> Steps[None]:
    """Store a summary for a content for as long as its session exists, in place of an earlier one."""
    yield Statement(
        "INSERT INTO cached_summaries ({key}, key, record) VALUES ({keys}, ?, ?)"
        " ON CONFLICT ({key}, key) DO UPDATE SET record = excluded.record",
        (*key, content, to_json(summary)),
    )


def find_key(key: Key, name: str) -> Steps[int | None]:
    """The position of the message that has this key; None if there is none."""
    found: int | None = only((yield Statement("SELECT seq FROM messages WHERE {of} AND key = ?", (*key, Name(name)))))
    return found


def release_lease(key: Key, purpose: str, holder: str) -> Steps[None]:
    """Release a lease, if this holder still has it."""
    yield Statement("DELETE FROM leases WHERE {of} AND purpose = ? AND holder = ?", (*key, purpose, holder))
