"""Pattern searches: few at a time, a bounded number waiting, and retrievals without a pattern never wait."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from contextstash.session.pattern_searches import MAX_THREADS, PatternSearches
from contextstash_storage.errors import OverloadedError, StoreError
from tests.support.sized_sessions import rounds, user
from tests.support.stashes import SESSION, all_handles, stash_at


async def begun(searches: PatternSearches, count: int, end: threading.Event) -> list[asyncio.Task[bool]]:
    """`count` searches that last until `end`; those that have a thread are running when this returns."""
    running = threading.Semaphore(0)

    def search() -> bool:
        running.release()
        return end.wait(60)

    tasks = [asyncio.create_task(searches.run(search)) for _ in range(count)]
    for _ in range(min(count, MAX_THREADS)):
        await asyncio.to_thread(running.acquire)
    return tasks


async def test_more_than_may_wait_are_refused_with_advice_and_the_others_are_answered() -> None:
    searches, end = PatternSearches(max_waiting=3), threading.Event()
    tasks = await begun(searches, MAX_THREADS + 3, end)
    with pytest.raises(OverloadedError, match="try again in a few seconds"):
        await searches.run(lambda: True)
    end.set()
    assert await asyncio.gather(*tasks) == [True] * (MAX_THREADS + 3)
    assert await searches.run(lambda: "free again") == "free again"


async def test_a_search_that_waits_for_too_long_is_refused() -> None:
    searches, end = PatternSearches(max_wait_seconds=0.01), threading.Event()
    tasks = await begun(searches, MAX_THREADS, end)
    with pytest.raises(OverloadedError):
        await searches.run(lambda: True)
    end.set()
    assert await asyncio.gather(*tasks) == [True] * MAX_THREADS


async def test_a_cancelled_search_occupies_its_thread_until_it_ends() -> None:
    searches, end = PatternSearches(max_wait_seconds=0.01), threading.Event()
    tasks = await begun(searches, MAX_THREADS, end)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    with pytest.raises(OverloadedError):
        await searches.run(lambda: True)
    end.set()


async def test_what_a_search_raises_reaches_its_caller_and_frees_the_thread() -> None:
    searches = PatternSearches()
    for _ in range(2 * MAX_THREADS):
        with pytest.raises(ZeroDivisionError):
            await searches.run(lambda: 1 // 0)
    assert await searches.run(lambda: True)


async def test_no_search_starts_after_closing() -> None:
    searches, end = PatternSearches(), threading.Event()
    tasks = await begun(searches, MAX_THREADS, end)
    waiting = asyncio.create_task(searches.run(lambda: True))
    await asyncio.sleep(0)
    searches.close()
    end.set()
    assert await asyncio.gather(*tasks) == [True] * MAX_THREADS
    with pytest.raises(StoreError, match="closed"):
        await waiting


async def test_a_retrieval_without_a_pattern_is_answered_while_all_threads_for_patterns_are_taken(
    tmp_path: Path,
) -> None:
    async with stash_at(tmp_path / "r.db") as stash:
        await stash.record_messages([user(4), *rounds([400])], session_id=SESSION)
        [handle] = await all_handles(stash)
        end = threading.Event()
        tasks = await begun(stash.searches, 40, end)
        plain = await stash.get_archived_output(handle, session_id=SESSION)
        assert len(plain.text) == 400
        assert not any(task.done() for task in tasks)
        end.set()
        await asyncio.gather(*tasks)
        found = await stash.get_archived_output(handle, session_id=SESSION, pattern="0000")
    assert found.note == "1 of 1 matching lines."
