"""SQLite's dialect: the names and texts that the steps on rows use here, and the driver that runs them."""

from __future__ import annotations

import sqlite3
from functools import lru_cache
from typing import Any

from contextstash_storage.records import Session
from contextstash_storage.sql.rows import read_session
from contextstash_storage.sql.steps import Dialect, Repeated, Result, Statement, Steps
from contextstash_storage.sqlite.outputs import OUTPUT_COLUMNS, TOKENS, TOOL
from contextstash_storage.sqlite.rows import IS_SEEN, TIME_TEXT

# Fields of a call that have their default value are not stored.
_CALL_FIELDS = (
    "model", "purpose", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "cost",
)  # fmt: skip

DIALECT: Dialect = {
    "key": "session",
    "keys": "?",
    "of": "session = ?",
    "number": "session",
    "last": "session",
    "is_not": "IS NOT",
    "seen": IS_SEEN,
    # A session without messages stands where its last change puts it.
    "last_message": (
        f"coalesce((SELECT {TIME_TEXT} FROM messages WHERE messages.session = sessions.session"
        " ORDER BY seq DESC LIMIT 1), updated_at)"
    ),
    "messages": "counters ->> '$.messages'",
    "appended": "counters ->> '$.appended'",
    "outputs": "outputs JOIN sessions USING (session)",
    "tool": TOOL,
    "tokens": TOKENS,
    "output": OUTPUT_COLUMNS,
    "sha256": "CASE WHEN outputs.record = '' THEN lower(hex(outputs.sha256)) ELSE outputs.record ->> '$.sha256' END",
    "piece": ", place",
    "first_piece": ", 0",
    "summary_id": "json_extract(edits.record, '$.summary_id')",
    "call_day": "substr(record ->> '$.created_at', 1, 10)",
    **{f"call_{name}": f"record ->> '$.{name}'" for name in _CALL_FIELDS},
}


def run(db: sqlite3.Connection, steps: Steps[Result]) -> Result:
    """What the steps return."""
    try:
        asked = next(steps)
        while True:
            asked = steps.send(_rows(db, asked))
    except StopIteration as end:
        result: Result = end.value
        return result


def _rows(db: sqlite3.Connection, asked: Statement | Repeated) -> list[Any]:
    if isinstance(asked, Repeated):
        db.executemany(_spoken(asked.text), asked.rows)
        return []
    return db.execute(_spoken(asked.text), asked.values).fetchall()


@lru_cache(maxsize=256)
def _spoken(text: str) -> str:
    return text.format_map(DIALECT)


def session_row(db: sqlite3.Connection, owner: str, session_id: str) -> tuple[int, Session]:
    """A session's row number and record. Raises SessionNotFoundError."""
    return run(db, read_session(owner, session_id))
