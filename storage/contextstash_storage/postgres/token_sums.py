"""Sums over messages in PostgreSQL."""

from __future__ import annotations

from contextstash_storage.records import TokenSum
from contextstash_storage.sql.steps import Key, Statement, Steps


def token_sums(key: Key, width: int) -> Steps[list[TokenSum]]:
    """Tokens by run of messages, role, kind and type of block, summed by the database itself."""
    rows = yield Statement(
        "SELECT seq / ?, role, kind, type, sum(tokens)::bigint FROM messages,"
        " unnest(token_types, type_tokens) AS block (type, tokens) WHERE {of} AND agent_visible GROUP BY 1, 2, 3, 4",
        (width, *key),
    )
    return [TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens) for run, role, kind, name, tokens in rows]
