"""What is stored of a model call in SQLite, and what is summed up of messages."""

from __future__ import annotations

import sqlite3
from collections import Counter

from contextstash_storage.codec.derived_form import tokens_of
from contextstash_storage.codec.record_json import to_json
from contextstash_storage.records import BlockType, Call, Kind, Role, TokenSum
from contextstash_storage.sql.rows import now
from contextstash_storage.sql.steps import Key, Statement, Steps


def insert_call(key: Key, call: Call, reply: str | None = None) -> Steps[None]:
    """Store a model call; `reply` is the provider's id of its reply, if it is an agent's."""
    stamped = call.model_copy(update={"created_at": call.created_at or now()})
    yield Statement("INSERT INTO calls (session, reply, record) VALUES (?, ?, ?)", (*key, reply, to_json(stamped)))


def token_sums(db: sqlite3.Connection, session: int, width: int) -> list[TokenSum]:
    """Tokens by run of messages, role, kind and type of block."""
    sums: Counter[tuple[int, Role, Kind, BlockType]] = Counter()
    for seq, derived in db.execute("SELECT seq, derived FROM messages WHERE session = ?", (session,)):
        role, kind, blocks = tokens_of(derived)
        for name, tokens in blocks:
            sums[seq // width, role, kind, name] += tokens
    return [
        TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens)
        for (run, role, kind, name), tokens in sums.items()
    ]
