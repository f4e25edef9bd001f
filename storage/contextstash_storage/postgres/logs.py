"""A session's log in PostgreSQL: events, model calls, and summaries written before."""

from __future__ import annotations

from collections.abc import Sequence

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.session_key import OF_SESSION, Key
from contextstash_storage.records import CachedSummary, Call, Event, EventKind, TokenSum
from contextstash_storage.search.documents import storable
from contextstash_storage.sqlite.rows import from_json, now, to_json


async def insert_event(db: Connection, key: Key, event: Event) -> None:
    """Store an event, with the current time if it has none."""
    stamped = event.model_copy(update={"created_at": event.created_at or now()})
    await db.execute(
        "INSERT INTO events (owner, session_id, kind, record) VALUES ($1, $2, $3, $4)",
        *key,
        stamped.kind,
        to_json(stamped),
    )


async def read_events(db: Connection, key: Key, after: int, limit: int) -> list[Event]:
    """Events after the one numbered `after`, oldest first."""
    rows = await db.fetch(
        f"SELECT event_id, record FROM events WHERE {OF_SESSION} AND event_id > $3 ORDER BY event_id LIMIT $4",
        *key,
        after,
        limit,
    )
    return [_event(number, record) for number, record in rows]


async def last_events(db: Connection, key: Key, kinds: Sequence[EventKind], limit: int) -> list[Event]:
    """The newest events of these kinds, newest first."""
    rows = await db.fetch(
        f"SELECT event_id, record FROM events WHERE {OF_SESSION} AND kind = ANY($3) ORDER BY event_id DESC LIMIT $4",
        *key,
        list(kinds),
        limit,
    )
    return [_event(number, record) for number, record in rows]


def _event(number: int, record: str) -> Event:
    return from_json(Event, record).model_copy(update={"event_id": number})


async def insert_call(db: Connection, key: Key, call: Call, reply: str | None = None) -> None:
    """Store a model call; `reply` is the provider's id of its reply, if it is an agent's."""
    stamped = call.model_copy(update={"created_at": call.created_at or now()})
    await db.execute(
        "INSERT INTO calls (owner, session_id, reply, purpose, day, model, prompt_tokens, completion_tokens,"
        " cached_tokens, cache_write_tokens, cost, record) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)",
        *key,
        None if reply is None else reply.encode(),
        *_columns(stamped),
    )


async def update_call(db: Connection, key: Key, call: Call, reply: str) -> None:
    """Store a call again that a later report has changed."""
    await db.execute(
        "UPDATE calls SET purpose = $4, day = $5, model = $6, prompt_tokens = $7, completion_tokens = $8,"
        f" cached_tokens = $9, cache_write_tokens = $10, cost = $11, record = $12 WHERE {OF_SESSION} AND reply = $3",
        *key,
        reply.encode(),
        *_columns(call),
    )


def _columns(call: Call) -> tuple[object, ...]:
    """What is summed up of a call, and the whole of it."""
    assert call.created_at is not None
    return (
        call.purpose,
        call.created_at.isoformat()[:10],
        None if call.model is None else storable(call.model),
        call.prompt_tokens,
        call.completion_tokens,
        call.cached_tokens,
        call.cache_write_tokens,
        call.cost,
        to_json(call),
    )


async def find_reply(db: Connection, key: Key, reply: str | None) -> Call | None:
    """The call whose reply has this id."""
    if reply is None:
        return None
    sql = f"SELECT record FROM calls WHERE {OF_SESSION} AND reply = $3"
    record = await db.fetchval(sql, *key, reply.encode())
    return None if record is None else from_json(Call, record)


async def read_calls(db: Connection, key: Key, after: int, limit: int) -> list[Call]:
    """Calls after the one numbered `after`, oldest first."""
    rows = await db.fetch(
        f"SELECT call_id, record FROM calls WHERE {OF_SESSION} AND call_id > $3 ORDER BY call_id LIMIT $4",
        *key,
        after,
        limit,
    )
    return [_call(number, record) for number, record in rows]


async def last_calls(db: Connection, key: Key, limit: int) -> list[Call]:
    """The newest calls, newest first."""
    rows = await db.fetch(
        f"SELECT call_id, record FROM calls WHERE {OF_SESSION} ORDER BY call_id DESC LIMIT $3", *key, limit
    )
    return [_call(number, record) for number, record in rows]


def _call(number: int, record: str) -> Call:
    return from_json(Call, record).model_copy(update={"call_id": number})


async def token_sums(db: Connection, key: Key, width: int) -> list[TokenSum]:
    """Tokens by run of messages, role, kind and type of block, summed by the database itself."""
    rows = await db.fetch(
        "SELECT seq / $3, role, kind, type, sum(tokens)::bigint FROM messages,"
        f" unnest(token_types, type_tokens) AS block (type, tokens) WHERE {OF_SESSION} AND agent_visible"
        " GROUP BY 1, 2, 3, 4",
        *key,
        width,
    )
    return [TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens) for run, role, kind, name, tokens in rows]


async def read_cached_summary(db: Connection, key: Key, content: str) -> CachedSummary | None:
    """The summary stored for a content."""
    sql = f"SELECT record FROM cached_summaries WHERE {OF_SESSION} AND key = $3"
    record = await db.fetchval(sql, *key, content)
    return None if record is None else from_json(CachedSummary, record)


async def keep_summary(db: Connection, key: Key, content: str, summary: CachedSummary) -> None:
    """Store a summary for a content, replacing an earlier one."""
    await db.execute(
        "INSERT INTO cached_summaries (owner, session_id, key, record) VALUES ($1, $2, $3, $4)"
        " ON CONFLICT (owner, session_id, key) DO UPDATE SET record = excluded.record",
        *key,
        content,
        to_json(summary),
    )
