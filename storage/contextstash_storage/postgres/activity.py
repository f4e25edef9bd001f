"""Lists of sessions in PostgreSQL, and sums over what they hold: computed by the database itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.postgres.sessions import COLUMNS
from contextstash_storage.records import Session
from contextstash_storage.sqlite.activity import MAX_TOOLS, listed
from contextstash_storage.sqlite.rows import no_session
from contextstash_storage.totals import DaySum, StoreMark, ToolSum, Totals

# A session without messages stands where its last change puts it.
_LAST_MESSAGE = "coalesce(last_message_at, updated_at)"
_NOT_OF_AGENT = "agent IS DISTINCT FROM $2"


async def sessions_of(
    db: Connection,
    owner: str,
    limit: int,
    before: str | None,
    parent: str | None,
    without_agent: str | None,
    by_message: bool,
) -> list[Session]:
    """See SessionStore.list_sessions."""
    time = _LAST_MESSAGE if by_message else "updated_at"
    values: list[object] = [owner]

    def value(given: object) -> str:
        values.append(given)
        return f"${len(values)}"

    sql = f"SELECT {COLUMNS}, {time} AS time FROM sessions WHERE owner = $1"
    if parent is not None:
        sql += f" AND parent_session_id = {value(parent)}"
    if without_agent is not None:
        sql += f" AND agent IS DISTINCT FROM {value(without_agent)}"
    if before is not None:
        at = await db.fetchval(f"SELECT {time} FROM sessions WHERE {OF_SESSION}", owner, before)
        if at is None:
            raise no_session(before)
        sql += f" AND ({time}, session_id) < ({value(at)}, {value(before)})"
    rows = await db.fetch(f"{sql} ORDER BY time DESC, session_id DESC LIMIT {value(limit)}", *values)
    return [listed(tuple(row), by_message) for row in rows]


async def totals(db: Connection, owner: str, without_agent: str) -> Totals:
    """Sums over all sessions of an owner but those of `without_agent`."""
    row = await db.fetchrow(
        "SELECT count(*), coalesce(sum(messages), 0)::bigint, coalesce(sum(appended), 0)::bigint FROM sessions"
        f" WHERE owner = $1 AND {_NOT_OF_AGENT}",
        owner,
        without_agent,
    )
    assert row is not None
    where = f"owner = $1 AND {_NOT_OF_AGENT}"
    return Totals(
        sessions=row[0],
        messages=row[1],
        tokens=row[2],
        tools=await _tools(db, f"JOIN sessions USING (owner, session_id) WHERE {where}", (owner, without_agent)),
        days=await _days(db, "JOIN sessions USING (owner, session_id)", where, (owner, without_agent)),
    )


async def mark(db: Connection, owner: str) -> StoreMark:
    """What is different after any change of an owner's sessions."""
    row = await db.fetchrow("SELECT count(*), max(updated_at) FROM sessions WHERE owner = $1", owner)
    assert row is not None
    return StoreMark(sessions=row[0], changed_at=datetime.fromisoformat(row[1]) if row[1] else None)


async def session_tools(db: Connection, key: Key) -> list[ToolSum]:
    """The outputs of one session by tool, the most tokens first."""
    return list(await _tools(db, f"WHERE {OF_SESSION}", key))


async def session_days(db: Connection, key: Key) -> list[DaySum]:
    """The model calls of one session by day."""
    return list(await _days(db, "", OF_SESSION, key))


async def _tools(db: Connection, of: str, values: Sequence[object]) -> tuple[ToolSum, ...]:
    rows = await db.fetch(
        f"SELECT tool, count(*), sum(tokens)::bigint FROM outputs {of} GROUP BY 1 ORDER BY 3 DESC, 1 LIMIT {MAX_TOOLS}",
        *values,
    )
    return tuple(ToolSum(tool=tool, outputs=outputs, tokens=tokens) for tool, outputs, tokens in rows)


async def _days(db: Connection, joined: str, where: str, values: Sequence[object]) -> tuple[DaySum, ...]:
    rows = await db.fetch(
        "SELECT day, calls.model, count(*) AS calls, sum(prompt_tokens)::bigint AS prompt_tokens,"
        " sum(completion_tokens)::bigint AS completion_tokens, sum(cached_tokens)::bigint AS cached_tokens,"
        " sum(cache_write_tokens)::bigint AS cache_write_tokens, coalesce(sum(cost), 0) AS cost, count(cost) AS priced"
        f" FROM calls {joined} WHERE {where} AND purpose = 'agent' GROUP BY 1, 2 ORDER BY 1, 2 NULLS FIRST",
        *values,
    )
    return tuple(DaySum(**dict(row)) for row in rows)
