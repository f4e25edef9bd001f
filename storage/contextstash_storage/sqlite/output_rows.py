"""Rows of tool outputs. Those of former versions have their fields as JSON in `record`; later ones have columns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any

from contextstash_storage.codec.record_json import from_json, to_json
from contextstash_storage.records import Output

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


def output_of(row: Sequence[Any]) -> Output:
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
