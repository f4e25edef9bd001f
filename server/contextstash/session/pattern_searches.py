"""Pattern searches: few at a time, in threads of their own, so that a slow pattern delays only other pattern searches.

asyncio's default threads are shared by every retrieval; a few backtracking patterns there would block all retrievals.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from contextstash_storage.errors import OverloadedError, StoreError

MAX_THREADS = 2
"""The matcher releases Python's global lock and uses a whole core; more threads would slow down all other calls."""

MAX_WAITING = 64
"""Searches that may wait for a thread. An agent makes about ten calls in parallel, and each takes milliseconds."""

MAX_WAIT_SECONDS = 10.0
"""Enough for about five earlier searches that use up all their time (SEARCH_SECONDS), and well below the 60 s after
which clients give up a call."""

OVERLOADED = (
    "Too many pattern searches are running, some of them slow: try again in a few seconds, with plainer patterns,"
    " or page through the output without pattern."
)

Result = TypeVar("Result")


class PatternSearches:
    """Runs searches in threads; the matcher bounds the time of each."""

    def __init__(self, max_waiting: int = MAX_WAITING, max_wait_seconds: float = MAX_WAIT_SECONDS) -> None:
        self._max_waiting = max_waiting
        self._max_wait_seconds = max_wait_seconds
        self._free = asyncio.Semaphore(MAX_THREADS)
        self._waiting = 0
        self._threads: ThreadPoolExecutor | None = None
        self._closed = False

    async def run(self, search: Callable[[], Result]) -> Result:
        """Return the result of `search`. Raises OverloadedError if too many wait, or if this waits for too long."""
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
            self._threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="pattern-search")
        running = asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(self._threads, search))
        # not when the caller returns: after a cancellation the thread continues its search until its time is up
        running.add_done_callback(lambda _: self._free.release())
        return await asyncio.shield(running)

    def close(self) -> None:
        """Start no further searches; a running one ends within its own time limit."""
        self._closed = True
        if self._threads is not None:
            self._threads.shutdown(wait=False)
