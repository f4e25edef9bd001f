"""Rows of sessions, and what belongs to them beside their history."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from contextstash_storage.codec.record_json import from_json, to_json
from contextstash_storage.records import (
    CachedSummary,
    Counters,
    Cursor,
    DaySum,
    Session,
    SessionExtras,
    StoredBatch,
    StoreMark,
    ToolSum,
    Totals,
)
from contextstash_storage.sql.logs import put_cached_summary
from contextstash_storage.sql.requests import get_proxied, put_proxied
from contextstash_storage.sql.rows import SESSION_COLUMNS, no_session, now, session_of
from contextstash_storage.sql.steps import Key, Repeated, Statement, Steps


def update_fields(key: Key, changes: Mapping[str, Any], stored: Callable[[Any], Any]) -> Steps[None]:
    """Change fields of a session. `stored` makes of a name or title what the store can hold."""
    for name, value in changes.items():
        written = json.dumps(dict(value)) if name == "settings" else stored(value)
        yield Statement(f"UPDATE sessions SET {name} = ? WHERE {{of}}", (written, *key))
    yield Statement("UPDATE sessions SET updated_at = ? WHERE {of}", (now().isoformat(), *key))


def put_level(key: Key, counters: Counters, level: str) -> Steps[None]:
    """Store how full a session's window is."""
    changed = counters.model_copy(update={"level": level})
    yield Statement("UPDATE sessions SET counters = ? WHERE {of}", (to_json(changed), *key))


def owners() -> Steps[list[str]]:
    """All owners that have sessions, in order."""
    rows = yield Statement("SELECT DISTINCT owner FROM sessions WHERE {seen} ORDER BY owner")
    return [owner for (owner,) in rows]


def find_session_ids(owner: str, prefix: str, limit: int, *, without_agent: str | None = None) -> Steps[list[str]]:
    """The ids of sessions that begin with `prefix`, the last changed first; not those of `without_agent`."""
    rows = yield Statement(
        "SELECT session_id FROM sessions WHERE owner = ? AND substr(session_id, 1, ?) = ? AND agent {is_not} ?"
        " ORDER BY updated_at DESC LIMIT ?",
        (owner, len(prefix), prefix, without_agent or "", limit),
    )
    return [session_id for (session_id,) in rows]


def get_cursor(owner: str, source: str) -> Steps[Cursor | None]:
    """How far a source has been read; None if it has not been."""
    rows = yield Statement("SELECT record FROM cursors WHERE owner = ? AND source = ? LIMIT 1", (owner, source))
    return from_json(Cursor, rows[0][0]) if rows else None


def read_extras(key: Key) -> Steps[SessionExtras]:
    """What a session has beside its history."""
    cursors = yield Statement("SELECT record FROM cursors WHERE {of} ORDER BY source", key)
    batches = yield Statement(
        "SELECT batch_id, min(first_seq), sum(count), fingerprint FROM batches WHERE {of}"
        " GROUP BY batch_id, fingerprint ORDER BY batch_id",
        key,
    )
    summaries = yield Statement("SELECT key, record FROM cached_summaries WHERE {of} ORDER BY key", key)
    return SessionExtras(
        cursors=tuple(from_json(Cursor, record) for (record,) in cursors),
        batches=tuple(
            StoredBatch(batch_id=batch_id, first_seq=first_seq, count=int(count), fingerprint=fingerprint.hex().upper())
            for batch_id, first_seq, count, fingerprint in batches
        ),
        summaries={name: from_json(CachedSummary, record) for name, record in summaries},
        proxied=(yield from get_proxied(key)),
    )


def put_cursor(owner: str, key: Key, cursor: Cursor) -> Steps[None]:
    """Store how far a source has been read: in this session, no longer in another."""
    yield Statement("DELETE FROM cursors WHERE owner = ? AND source = ?", (owner, cursor.source))
    text = "INSERT INTO cursors (owner, {last}, source, record) VALUES (?, ?, ?, ?)"
    yield Statement(text, (owner, key[-1], cursor.source, to_json(cursor)))


def note_batch(key: Key, batch_id: str, first_seq: int, count: int, fingerprint: bytes) -> Steps[None]:
    """Remember that `count` messages of a batch stand at `first_seq` and after it."""
    yield Statement(
        "INSERT INTO batches ({key}, batch_id, first_seq, count, fingerprint{piece})"
        " VALUES ({keys}, ?, ?, ?, ?{number_of_piece}) ON CONFLICT DO NOTHING",
        (*key, batch_id, first_seq, count, fingerprint),
    )


def put_extras(owner: str, key: Key, extras: SessionExtras) -> Steps[None]:
    """Store what a session has beside its history."""
    yield Repeated(
        "INSERT INTO cursors (owner, {last}, source, record) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        [(owner, key[-1], cursor.source, to_json(cursor)) for cursor in extras.cursors],
    )
    for batch in extras.batches:
        yield from note_batch(key, batch.batch_id, batch.first_seq, batch.count, bytes.fromhex(batch.fingerprint))
    for name, summary in extras.summaries.items():
        yield from put_cached_summary(key, name, summary)
    if extras.proxied is not None:
        yield from put_proxied(key, extras.proxied)


MAX_TOOLS = 200
"""Of which sums are returned: MCP servers may bring any number. Those with fewer tokens are left out of the list."""

_OF_OWNER = "owner = ? AND agent {is_not} ?"

_TOOLS = (
    "SELECT {tool}, count(*), sum({tokens}) FROM outputs JOIN sessions USING ({key}) WHERE %s"
    f" GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {MAX_TOOLS}"
)

_DAYS = (
    "SELECT {call_day}, {call_model}, count(*), sum({call_prompt_tokens}), sum({call_completion_tokens}),"
    " sum({call_cached_tokens}), sum({call_cache_write_tokens}),"
    " sum({call_cache_write_1h_tokens}), coalesce(sum({call_cost}), 0), count({call_cost})"
    " FROM calls JOIN sessions USING ({key}) WHERE %s AND {call_purpose} = 'agent'"
    " GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST"
)


def list_sessions(
    owner: str,
    *,
    limit: int = 50,
    before: str | None = None,
    parent: str | None = None,
    without_agent: str | None = None,
    by_message: bool = False,
) -> Steps[list[Session]]:
    """Sessions by last change, or with `by_message` by the time of their last message, newest first. `before` is
    the last session_id of the previous page; those of `without_agent` are left out."""
    time = "{last_message}" if by_message else "updated_at"
    text, values = f"SELECT {SESSION_COLUMNS}, {time} AS time FROM sessions WHERE owner = ?", [owner]
    if parent is not None:
        text += " AND parent_session_id = ?"
        values.append(parent)
    if without_agent is not None:
        text += " AND agent {is_not} ?"
        values.append(without_agent)
    if before is not None:
        place = f"SELECT {time}, {{last}} FROM sessions WHERE owner = ? AND session_id = ?"
        found = yield Statement(place, (owner, before))
        if not found:
            raise no_session(before)
        text += f" AND ({time}, {{last}}) < (?, ?)"
        values += found[0]
    rows = yield Statement(f"{text} ORDER BY time DESC, {{last}} DESC LIMIT ?", (*values, limit))
    return [_listed(tuple(row), by_message) for row in rows]


def _listed(row: tuple[Any, ...], by_message: bool) -> Session:
    """The session in a row of a list, whose last column is the time by which the list is ordered."""
    session = session_of(row[:-1])
    if not by_message or not session.counters.messages:
        return session
    return session.model_copy(update={"last_message_at": datetime.fromisoformat(str(row[-1]))})


def totals(owner: str, *, without_agent: str = "") -> Steps[Totals]:
    """Sums over all sessions of an owner but those of `without_agent`."""
    values = (owner, without_agent)
    [(sessions, messages, tokens)] = yield Statement(
        f"SELECT count(*), coalesce(sum({{messages}}), 0), coalesce(sum({{appended}}), 0) FROM sessions"
        f" WHERE {_OF_OWNER}",
        values,
    )
    return Totals(
        sessions=sessions,
        messages=int(messages),
        tokens=int(tokens),
        tools=tuple((yield from _tools(_OF_OWNER, values))),
        days=tuple((yield from _days(_OF_OWNER, values))),
    )


def mark(owner: str) -> Steps[StoreMark]:
    """The figures that any change of an owner's sessions changes, quickly read."""
    [(sessions, changed)] = yield Statement("SELECT count(*), max(updated_at) FROM sessions WHERE owner = ?", (owner,))
    return StoreMark(sessions=sessions, changed_at=datetime.fromisoformat(changed) if changed else None)


def session_tools(key: Key) -> Steps[list[ToolSum]]:
    """The outputs of one session by tool, the most tokens first."""
    return (yield from _tools("{of}", key))


def session_days(key: Key) -> Steps[list[DaySum]]:
    """The agent's model calls of a session by day."""
    return (yield from _days("{of}", key))


def _tools(where: str, values: Sequence[object]) -> Steps[list[ToolSum]]:
    rows = yield Statement(_TOOLS % where, values)
    return [ToolSum(tool=tool, outputs=outputs, tokens=int(tokens)) for tool, outputs, tokens in rows]


def _days(where: str, values: Sequence[object]) -> Steps[list[DaySum]]:
    rows = yield Statement(_DAYS % where, values)
    return [_day(*row) for row in rows]


def _day(day: str, model: str | None, calls: int, *sums: Any) -> DaySum:
    prompt, completion, cached, written, long, cost, priced = sums
    return DaySum(
        day=day,
        model=model,
        calls=calls,
        prompt_tokens=round(prompt or 0),
        completion_tokens=round(completion or 0),
        cached_tokens=round(cached or 0),
        cache_write_tokens=round(written or 0),
        cache_write_1h_tokens=round(long or 0),
        cost=cost,
        priced=priced,
    )
