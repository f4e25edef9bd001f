"""Sums over messages in PostgreSQL."""

from __future__ import annotations

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.postgres.dialect import OF_SESSION
from contextstash_storage.records import TokenSum
from contextstash_storage.sql.steps import Key


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
