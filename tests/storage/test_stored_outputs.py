"""Outputs come back as they were recorded, in columns or, if these cannot hold them, as JSON."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contextstash_storage.records import Output
from contextstash_storage.sqlite.store import SqliteStore
from tests.support.stored_sessions import SESSION, answers, record

HASH = "ab" * 32


@pytest.mark.parametrize(
    ("changed", "is_json"),
    [
        ({}, False),
        ({"is_error": True, "argument": "src/\x00é.py"}, False),
        ({"tool": "\ud800"}, True),
        ({"argument": "\udfff"}, True),
        ({"sha256": ""}, False),
        ({"sha256": "AB" * 32}, True),
        ({"sha256": "no hash"}, True),
    ],
)
async def test_any_output_comes_back_equal(
    store: SqliteStore, path: Path, changed: dict[str, object], is_json: bool
) -> None:
    usual = Output(handle="out_a", seq=0, block=0, tool="Read", tokens=5, characters=7, lines=2, sha256=HASH)
    output = usual.model_copy(update=changed)
    message = answers("call_1").model_copy(update={"outputs": (output,)})
    await record(store, message)
    assert await store.read_outputs(SESSION) == [output]
    assert await store.find_output("out_a") == (SESSION, output)
    with closing(sqlite3.connect(path)) as db:
        [record_text] = db.execute("SELECT record FROM outputs").fetchone()
    assert bool(record_text) is is_json
