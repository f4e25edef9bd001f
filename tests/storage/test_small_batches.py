"""Small batches: each is one transaction, whatever other processes do."""

from __future__ import annotations

import asyncio
from typing import Any

from contextstash_storage.store import SessionStore
from tests.storage.conftest import Opener
from tests.support.effort import THOROUGH
from tests.support.stored_sessions import answers, bodies, calls, new_session, record, says

BATCHES = 2_000 if THOROUGH else 100
"""Of each program."""

MESSAGES = 4
"""Of each batch."""


async def record_batches(store: SessionStore, name: str) -> None:
    """Record batches whose messages all hold the name of their batch, which is its id."""
    for place in range(BATCHES):
        batch = f"{name}-{place}"
        await record(store, says(batch), calls(batch), answers(batch), says(batch, role="assistant"), batch_id=batch)


def batch_of(body: Any) -> str:
    return str(body.get("tool_call_id") or body.get("content") or body["tool_calls"][0]["id"])


async def test_no_batch_of_two_programs_is_split(open_store: Opener) -> None:
    one, two = await open_store(), await open_store()
    await new_session(one)
    await asyncio.gather(record_batches(one, "one"), record_batches(two, "two"))
    names = [batch_of(body) for body in await bodies(one)]
    runs = [names[place : place + MESSAGES] for place in range(0, len(names), MESSAGES)]
    assert [run for run in runs if len(set(run)) != 1] == []
    assert len({run[0] for run in runs}) == len(runs) == 2 * BATCHES
