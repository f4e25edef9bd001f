"""Locks by session: one holder at a time even if tasks are cancelled, and no lock is kept after its last use."""

from __future__ import annotations

import asyncio
import gc
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contextstash.session.access import Access
from tests.support.effort import examples

NO_STORE: Any = None


@settings(max_examples=examples(100))
@given(
    sessions=st.lists(st.sampled_from("abc"), min_size=1, max_size=30),
    cancelled=st.sets(st.integers(0, 29)),
    steps=st.integers(0, 10),
    seed=st.integers(0, 1_000),
)
def test_two_tasks_never_hold_the_lock_of_one_session_and_no_lock_remains(
    sessions: list[str], cancelled: set[int], steps: int, seed: int
) -> None:
    access, chance = Access(NO_STORE), random.Random(seed)
    holders: dict[str, int] = dict.fromkeys("abc", 0)

    async def use(session_id: str) -> None:
        async with access.lock(session_id):
            holders[session_id] += 1
            assert holders[session_id] == 1
            try:
                for _ in range(chance.randrange(4)):
                    await asyncio.sleep(0)
            finally:
                holders[session_id] -= 1

    async def run() -> None:
        tasks = [asyncio.create_task(use(session_id)) for session_id in sessions]
        for _ in range(steps):
            await asyncio.sleep(0)
        for number in cancelled & set(range(len(tasks))):
            tasks[number].cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in ended} <= {type(None), asyncio.CancelledError}
        del ended, tasks  # their errors hold the frames in which they waited
        await asyncio.sleep(0)
        gc.collect()
        assert len(access._locks) == 0

    asyncio.run(run())
