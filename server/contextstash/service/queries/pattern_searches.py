"""Pattern searches: in threads of their own, few at a time, so that a pattern that backtracks delays only others.

asyncio's default threads are shared by every retrieval; a few such patterns would keep all of them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from contextstash_storage.errors import OverloadedError, StoreError

THREADS = 2
"""More would take the processor from all other calls: the matcher runs without Python's lock, at full speed."""

MAX_WAITING = 64
"""Searches that may wait for a thread; an agent's parallel calls are some ten, and each takes milliseconds."""

MAX_WAIT_SECONDS = 10.0
"""Some five searches that use up all their time (matching.SEARCH_SECONDS) before this one; clients give up a call
after 60 s."""

OVERLOADED = (
    "Too many pattern searches are running, some of them slow: try again in a few seconds, with plainer patterns,"
    " or page through the output without pattern."
)

Result = TypeVar("Result")


class PatternSearches:
    """Runs searches whose own time is bounded by the matcher."""

    def __init__(self, max_waiting: int = MAX_WAITING, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        self._max_waiting = max_waiting
        self._max_wait_seconds = max_wait_seconds
        self._free = asyncio.Semaphore(THREADS)
        self._waiting = 0
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(self, search: Callable[[], Result]) -> Result:
        """What `search` returns or raises. Raises OverloadedError if too many wait, or if this waits for too long."""
        if self._waiting >= self._max_waiting:
            raise OverloadedError(OVERLOADED)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._max_wait_seconds):
                await self._free.acquire()
        except TimeoutError:
            raise OverloadedError(OVERLOADED) from None
        finally:
            self._waiting -= 1
        if self._closed:
            self._free.release()
            raise StoreError("The session store is closed.")
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="pattern-search")
        running = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._threads, search))
        # not when the caller is done: a cancelled one leaves, but its thread searches on until its time is up
        running.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(running)

    def close(self) -> None:
        """Begin nothing more; what runs ends within its own time."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
