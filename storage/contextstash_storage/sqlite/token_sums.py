"""Sums over messages in SQLite."""

from __future__ import annotations

import sqlite3
from collections import Counter

from contextstash_storage.codec.record_json import tokens_of
from contextstash_storage.records import BlockType, Kind, Role, TokenSum


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
