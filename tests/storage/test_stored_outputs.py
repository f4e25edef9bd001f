"""Outputs come back as they were recorded, in columns or, if these cannot hold them, as JSON."""

from __future__ import annotations

import pytest

from contextstash_storage.records import Output
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import SESSION, answers, record

HASH = "ab" * 32


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"is_error": True, "argument": "src/\x00é.py"},
        {"tool": "\ud800"},
        {"argument": "\udfff"},
    ],
)
async def test_any_output_comes_back_equal(store: SessionStore, changed: dict[str, object]) -> None:
    usual = Output(handle="out_a", seq=0, block=0, tool="Read", tokens=5, characters=7, lines=2, sha256=HASH)
    output = usual.model_copy(update=changed)
    message = answers("call_1").model_copy(update={"outputs": (output,)})
    await record(store, message)
    assert await store.read_outputs(SESSION) == [output]
    assert await store.find_output("out_a") == (SESSION, output)
