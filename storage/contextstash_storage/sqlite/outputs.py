"""Rows of tool outputs. Those of former versions have their fields as JSON in `record`; later ones have columns."""

from __future__ import annotations

import sqlite3
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.handles import MAX_NAMED, NAME_LENGTH, ambiguous, former_handle
from contextstash_storage.records import Output
from contextstash_storage.sqlite.rows import from_json, no_handle, to_json

OUTPUT_COLUMNS = (
    "outputs.record, outputs.handle, outputs.seq, outputs.block, outputs.tool, outputs.argument, outputs.tokens,"
    " outputs.characters, outputs.lines, outputs.sha256, outputs.is_error"
)
"""What `output_of` reads."""

TOOL = "ifnull(outputs.tool, outputs.record ->> '$.tool')"
ARGUMENT = "ifnull(outputs.argument, outputs.record ->> '$.argument')"
TOKENS = "ifnull(outputs.tokens, outputs.record ->> '$.tokens')"
CHARACTERS = "ifnull(outputs.characters, outputs.record ->> '$.characters')"


def insert_output(db: sqlite3.Connection, session: int, output: Output) -> None:
    """Store an output."""
    values: tuple[Any, ...] = (to_json(output), *[None] * 7)
    if _fits_columns(output):
        sha256 = bytes.fromhex(output.sha256)
        numbers = (output.tokens, output.characters, output.lines)
        values = ("", output.tool, output.argument, *numbers, sha256, 1 if output.is_error else None)
    db.execute(
        "INSERT INTO outputs (session, handle, seq, block, record, tool, argument, tokens, characters, lines, sha256,"
        " is_error) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (session, output.handle, output.seq, output.block, *values),
    )


def _fits_columns(output: Output) -> bool:
    """Whether the columns bring an output back as it is: lone surrogates do not fit into text, and the hash of an
    imported session can be any text."""
    try:
        f"{output.tool}{output.argument}".encode()
        return bytes.fromhex(output.sha256).hex() == output.sha256
    except ValueError:
        return False


def output_of(row: tuple[Any, ...]) -> Output:
    """The output of a row of OUTPUT_COLUMNS."""
    record, handle, seq, block, tool, argument, tokens, characters, lines, sha256, is_error = row
    if record:
        return from_json(Output, record)
    return Output(
        handle=handle,
        seq=seq,
        block=block,
        tool=tool,
        argument=argument,
        tokens=tokens,
        characters=characters,
        lines=lines,
        sha256=sha256.hex(),
        is_error=bool(is_error),
    )


_SHA256 = "CASE WHEN outputs.record = '' THEN lower(hex(outputs.sha256)) ELSE outputs.record ->> '$.sha256' END"

_MEANINGS = f"""
SELECT * FROM (
    SELECT sessions.session_id, row_number() OVER (PARTITION BY {_SHA256} ORDER BY sessions.updated_at DESC) AS place,
        {OUTPUT_COLUMNS}
    FROM outputs JOIN sessions USING (session)
    WHERE sessions.owner = ?1 AND sessions.session_id = ifnull(?2, sessions.session_id) AND %s
) WHERE place = 1 LIMIT {MAX_NAMED}
"""
"""The outputs that a handle can mean, with different texts: of each text the one in the newest session."""

_NAMED = _MEANINGS % "outputs.handle = ?3"
_FORMERLY_NAMED = (
    _MEANINGS % f"outputs.handle >= ?3 AND outputs.handle < ?4 AND substr(outputs.handle, {NAME_LENGTH + 1}) = ?5"
)


def find_output(db: sqlite3.Connection, owner: str, handle: str, session_id: str | None) -> tuple[str, Output]:
    """As SessionStore.find_output."""
    rows = db.execute(_NAMED, (owner, session_id, handle)).fetchall()
    if not rows and (former := former_handle(handle)):
        rows = db.execute(_FORMERLY_NAMED, (owner, session_id, *former)).fetchall()
    if not rows:
        raise no_handle(handle, session_id)
    if len(rows) > 1:
        raise BadInputError(ambiguous(handle, [(row[0], row[3]) for row in rows]))
    return rows[0][0], output_of(rows[0][2:])


def outputs_between(db: sqlite3.Connection, session: int, first: int, last: int) -> list[Output]:
    """The outputs of the messages `first` to `last` of a session, in order."""
    rows = db.execute(
        f"SELECT {OUTPUT_COLUMNS} FROM outputs WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq, block",
        (session, first, last),
    )
    return [output_of(row) for row in rows]
