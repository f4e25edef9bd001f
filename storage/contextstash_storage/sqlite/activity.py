"""Lists of sessions, and sums over what they hold: computed by the database itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from contextstash_storage.records import Call, Session
from contextstash_storage.sqlite.outputs import TOKENS, TOOL
from contextstash_storage.sqlite.rows import SESSION_COLUMNS, TIME_TEXT, from_json, session_of, session_row
from contextstash_storage.totals import DaySum, StoreMark, ToolSum, Totals

MAX_TOOLS = 200
"""Of which sums are returned: MCP servers may bring any number. A guess at more than a page shows."""

# A session without messages stands where its last change puts it.
_LAST_MESSAGE = (
    f"coalesce((SELECT {TIME_TEXT} FROM messages WHERE messages.session = sessions.session"
    " ORDER BY seq DESC LIMIT 1), updated_at)"
)


def sessions_of(
    db: sqlite3.Connection,
    owner: str,
    limit: int,
    before: str | None,
    parent: str | None,
    without_agent: str | None,
    by_message: bool,
) -> list[Session]:
    """See SessionStore.list_sessions."""
    time = _LAST_MESSAGE if by_message else "updated_at"
    sql, values = f"SELECT {SESSION_COLUMNS}, {time} AS time FROM sessions WHERE owner = ?", [owner]
    if parent is not None:
        sql += " AND parent_session_id = ?"
        values.append(parent)
    if without_agent is not None:
        sql += " AND agent IS NOT ?"
        values.append(without_agent)
    bounds: tuple[object, ...] = ()
    if before is not None:
        last, _ = session_row(db, owner, before)
        [(at,)] = db.execute(f"SELECT {time} FROM sessions WHERE session = ?", (last,))
        sql += " AND (time, session) < (?, ?)"
        bounds = (at, last)
    rows = db.execute(f"{sql} ORDER BY time DESC, session DESC LIMIT ?", (*values, *bounds, limit))
    return [listed(row, by_message) for row in rows]


def listed(row: tuple[object, ...], by_message: bool) -> Session:
    """The session in a row of a list, whose last column is the time by which the list is ordered."""
    session = session_of(row[:-1])
    if not by_message or not session.counters.messages:
        return session
    return session.model_copy(update={"last_message_at": datetime.fromisoformat(str(row[-1]))})


def totals(db: sqlite3.Connection, owner: str, without_agent: str) -> Totals:
    """Sums over all sessions of an owner but those of `without_agent`."""
    [(sessions, messages, tokens)] = db.execute(
        "SELECT count(*), sum(counters ->> '$.messages'), sum(counters ->> '$.appended') FROM sessions"
        " WHERE owner = ? AND agent IS NOT ?",
        (owner, without_agent),
    )
    return Totals(
        sessions=sessions,
        messages=messages or 0,
        tokens=tokens or 0,
        tools=_tools(db, "owner = ? AND agent IS NOT ?", (owner, without_agent)),
        days=_days(db, "owner = ? AND agent IS NOT ?", (owner, without_agent)),
    )


def mark(db: sqlite3.Connection, owner: str) -> StoreMark:
    """What is different after any change of an owner's sessions."""
    [(sessions, changed)] = db.execute("SELECT count(*), max(updated_at) FROM sessions WHERE owner = ?", (owner,))
    return StoreMark(sessions=sessions, changed_at=datetime.fromisoformat(changed) if changed else None)


def session_tools(db: sqlite3.Connection, session: int) -> list[ToolSum]:
    """The outputs of one session by tool, the most tokens first."""
    return list(_tools(db, "session = ?", (session,)))


def session_days(db: sqlite3.Connection, session: int) -> list[DaySum]:
    """The model calls of one session by day."""
    return list(_days(db, "session = ?", (session,)))


def last_calls(db: sqlite3.Connection, session: int, limit: int) -> list[Call]:
    """The newest calls, newest first."""
    rows = db.execute(
        "SELECT call_id, record FROM calls WHERE session = ? ORDER BY call_id DESC LIMIT ?", (session, limit)
    )
    return [from_json(Call, record).model_copy(update={"call_id": number}) for number, record in rows]


def _tools(db: sqlite3.Connection, where: str, values: Sequence[object]) -> tuple[ToolSum, ...]:
    rows = db.execute(
        f"SELECT {TOOL}, count(*), sum({TOKENS}) FROM outputs JOIN sessions USING (session)"
        f" WHERE {where} GROUP BY 1 ORDER BY 3 DESC LIMIT {MAX_TOOLS}",
        values,
    )
    return tuple(ToolSum(tool=tool, outputs=outputs, tokens=tokens) for tool, outputs, tokens in rows)


def _days(db: sqlite3.Connection, where: str, values: Sequence[object]) -> tuple[DaySum, ...]:
    # Fields that have their default value are not stored.
    rows = db.execute(
        "SELECT substr(record ->> '$.created_at', 1, 10), record ->> '$.model', count(*),"
        " total(record ->> '$.prompt_tokens'), total(record ->> '$.completion_tokens'),"
        " total(record ->> '$.cached_tokens'), total(record ->> '$.cache_write_tokens'), total(record ->> '$.cost'),"
        " count(record ->> '$.cost') FROM calls JOIN sessions USING (session)"
        f" WHERE {where} AND record ->> '$.purpose' = 'agent' GROUP BY 1, 2 ORDER BY 1, 2",
        values,
    )
    return tuple(_day(*row) for row in rows)


def _day(
    day: str,
    model: str | None,
    calls: int,
    prompt: float,
    completion: float,
    cached: float,
    written: float,
    cost: float,
    priced: int,
) -> DaySum:
    return DaySum(
        day=day,
        model=model,
        calls=calls,
        prompt_tokens=round(prompt),
        completion_tokens=round(completion),
        cached_tokens=round(cached),
        cache_write_tokens=round(written),
        cost=cost,
        priced=priced,
    )
