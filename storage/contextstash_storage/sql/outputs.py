"""Tool outputs by their handles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.handles import MAX_NAMED, ambiguous
from contextstash_storage.records import Output
from contextstash_storage.sql.rows import no_handle
from contextstash_storage.sql.steps import Key, Statement, Steps

OutputOf = Callable[[Sequence[Any]], Output]
"""Makes the output of a row of the dialect's `output` columns."""

_MEANINGS = f"""
SELECT * FROM (
    SELECT session_id, row_number() OVER (PARTITION BY {{sha256}} ORDER BY updated_at DESC) AS place, {{output}}
    FROM outputs JOIN sessions USING ({{key}}) WHERE owner = ? AND %s
) AS meanings WHERE place = 1 LIMIT {MAX_NAMED}
"""
"""The outputs that a handle can mean, with different texts: of each text the one in the newest session."""


def find_output(owner: str, handle: str, session_id: str | None, output_of: OutputOf) -> Steps[tuple[str, Output]]:
    """As SessionStore.find_output."""
    named, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = yield Statement(_MEANINGS % ("handle = ?" + named), (owner, handle, *values))
    if not rows:
        raise no_handle(handle, session_id)
    found = [(row[0], output_of(row[2:])) for row in rows]
    if len(found) > 1:
        raise BadInputError(ambiguous(handle, [(name, output.handle) for name, output in found]))
    return found[0]


def output_rows(key: Key, first: int, last: int) -> Steps[list[Any]]:
    """The rows of the outputs of messages `first` to `last`, in order."""
    text = "SELECT {output} FROM outputs WHERE {of} AND seq BETWEEN ? AND ? ORDER BY seq, block"
    return (yield Statement(text, (*key, first, last)))


def find_handles(owner: str, prefix: str, limit: int) -> Steps[list[str]]:
    """The handles that begin with `prefix`, in order."""
    rows = yield Statement(
        "SELECT DISTINCT handle FROM {outputs}"
        " WHERE owner = ? AND handle >= ? AND substr(handle, 1, ?) = ? ORDER BY handle LIMIT ?",
        (owner, prefix, len(prefix), prefix, limit),
    )
    return [handle for (handle,) in rows]


def numbered(name: str, number: int) -> str:
    """The handle of the output that is the one of this number among those of one name."""
    return name if number == 1 else f"{name}-{number}"


def last_taken(key: Key, name: str, known: int = 0) -> Steps[int]:
    """The highest number of a handle's name that is taken, 0 for none; the first `known` are. Numbers are given in
    order, so it is found by doubling steps and halving them again: a thousand equal outputs take ten look-ups each."""

    def is_taken(number: int) -> Steps[bool]:
        values = (*key, numbered(name, number))
        return bool((yield Statement("SELECT 1 FROM outputs WHERE {of} AND handle = ?", values)))

    low, step = known, 1
    while (yield from is_taken(low + step)):
        low, step = low + step, 2 * step
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (yield from is_taken(middle)) else (low, middle)
    return low
