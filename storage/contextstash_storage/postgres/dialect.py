"""PostgreSQL's dialect: the names and texts that the steps on rows use here, and the driver that runs them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any

from contextstash_storage.codec.record_json import from_json
from contextstash_storage.postgres.connection import Connection
from contextstash_storage.records import Call, EditRecord, Output, SummaryEdit
from contextstash_storage.search.documents import storable
from contextstash_storage.sql.steps import (
    Aside,
    Dialect,
    Insertion,
    Name,
    OwnColumns,
    Repeated,
    Result,
    Statement,
    Steps,
)

OF_SESSION = "owner = $1 AND session_id = $2"
"""The condition of a session's rows in statements of this store alone, whose first values are its key."""

_CALL_FIGURES = (
    "purpose", "prompt_tokens", "completion_tokens", "cached_tokens", "cache_write_tokens", "cache_write_1h_tokens",
    "cost",
)  # fmt: skip

DIALECT: Dialect = {
    "key": "owner, session_id",
    "keys": "?, ?",
    "of": "owner = ? AND session_id = ?",
    "number": "NULL",
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
    "lock": " FOR UPDATE",
    "covers": "kind IN ('summary', 'restore')",
    "piece": "",
    "number_of_piece": "",
    "summary_id": "summary_id",
    "call_day": "day",
    "call_model": "calls.model",
    **{f"call_{name}": name for name in _CALL_FIGURES},
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


async def _rows(db: Connection, asked: Statement | Repeated | Insertion | Aside) -> list[Any]:
    if isinstance(asked, Aside):
        return await asyncio.to_thread(asked.work)
    if isinstance(asked, Insertion):
        asked = asked.repeated(_OWN_COLUMNS.get(asked.table))
    if isinstance(asked, Repeated):
        if asked.rows:
            await db.executemany(_spoken(asked.text), [_values(row) for row in asked.rows])
        return []
    rows: list[Any] = await db.fetch(_spoken(asked.text), *_values(asked.values))  # type: ignore[assignment]
    return rows


def _values(values: Sequence[object]) -> list[object]:
    return [value.encode("utf-8", "surrogatepass") if isinstance(value, Name) else value for value in values]


def _of_edit(edit: EditRecord) -> dict[str, object]:
    return {"kind": edit.kind, "summary_id": edit.summary_id if isinstance(edit, SummaryEdit) else None}


def _of_call(call: Call) -> dict[str, object]:
    assert call.created_at is not None
    columns = {"day": call.created_at.isoformat()[:10], "model": stored_name(call.model)}
    return columns | {name: getattr(call, name) for name in _CALL_FIGURES}


_OWN_COLUMNS: dict[str, OwnColumns] = {"edits": _of_edit, "calls": _of_call}


def stored_name(text: str | None) -> str | None:
    """A name or title as PostgreSQL can hold it."""
    return None if text is None else storable(text)


def output_of(row: Sequence[Any]) -> Output:
    """The output of a row of the dialect's `output` columns."""
    return from_json(Output, row[-1])


@lru_cache(maxsize=256)
def _spoken(text: str) -> str:
    numbers = count(1)
    first, *rest = text.format_map(DIALECT).split("?")
    return first + "".join(f"${next(numbers)}{part}" for part in rest)
