"""Rows of model calls in PostgreSQL, and sums over messages."""

from __future__ import annotations

from contextstash_storage.codec.record_json import from_json, to_json
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.records import Call, TokenSum
from contextstash_storage.search.documents import storable
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Statement, Steps


def insert_call(key: Key, call: Call, reply: str | None = None) -> Steps[None]:
    """Store a model call; `reply` is the provider's id of its reply, if it is an agent's."""
    stamped = call.model_copy(update={"created_at": call.created_at or now()})
    yield Statement(
        "INSERT INTO calls ({key}, reply, purpose, day, model, prompt_tokens, completion_tokens, cached_tokens,"
        " cache_write_tokens, cost, record) VALUES ({keys}, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, None if reply is None else reply.encode(), *_columns(stamped)),
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
