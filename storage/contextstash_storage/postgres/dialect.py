"""PostgreSQL's dialect: the names and texts that the steps on rows use here, and the driver that runs them."""

from __future__ import annotations

from functools import lru_cache
from itertools import count

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.sql.steps import Dialect, Repeated, Result, Statement, Steps

OF_SESSION = "owner = $1 AND session_id = $2"
"""The condition of a session's rows in statements of this store alone, whose first values are its key."""

DIALECT: Dialect = {
    "key": "owner, session_id",
    "keys": "?, ?",
    "of": "owner = ? AND session_id = ?",
    "number": "0",
    "last": "session_id",
    "is_not": "IS DISTINCT FROM",
    "seen": "true",
    "last_message": "coalesce(last_message_at, updated_at)",
    "messages": "messages",
    "appended": "appended",
    "outputs": "outputs",
    "tool": "tool",
    "tokens": "tokens",
    "output": "record",
    # No string of JSON can hold what stands before the hash.
    "sha256": """substring(record from '"sha256":"([^"]*)"')""",
    "piece": "",
    "first_piece": "",
    "summary_id": "summary_id",
    "call_day": "day",
    "call_model": "calls.model",
    "call_purpose": "purpose",
    "call_prompt_tokens": "prompt_tokens",
    "call_completion_tokens": "completion_tokens",
    "call_cached_tokens": "cached_tokens",
    "call_cache_write_tokens": "cache_write_tokens",
    "call_cost": "cost",
}


async def run(db: Connection, steps: Steps[Result]) -> Result:
    """What the steps return."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(await _rows(db, asked))
    except StopIteration as end:
        result: Result = end.value
        return result


async def _rows(db: Connection, asked: Statement | Repeated) -> list[object]:
    if isinstance(asked, Repeated):
        await db.executemany(_spoken(asked.text), asked.rows)
        return []
    rows: list[object] = await db.fetch(_spoken(asked.text), *asked.values)  # type: ignore[assignment]
    return rows


@lru_cache(maxsize=256)
def _spoken(text: str) -> str:
    numbers = count(1)
    first, *rest = text.format_map(DIALECT).split("?")
    return first + "".join(f"${next(numbers)}{part}" for part in rest)
