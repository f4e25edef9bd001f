"""Rate limits and concurrency limits of requests, by token or owner."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from contextstash.service.bounded_cache import BoundedCache

MAX_BUCKETS = 4_096
"""Names whose use is remembered, some 200 bytes each."""

BURST_SECONDS = 2.0
"""Seconds whose requests may come at once: an agent calls its tools in groups. Further ones get 429 and when to
retry."""

DEFAULT_RATE_LIMIT = 100
"""Requests a second of one token, for several agents that make a few each. Further ones get 429 and when to retry."""

MAX_RUNNING_OF_OWNER = 200
"""Requests and open streams of one owner at a time: a fifth of the server's, so that one owner cannot use up all. A
stream needs no further request, so no rate limits it."""


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class Buckets:
    """A token bucket for each name."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`rate` is in requests a second."""
        self._rate = rate
        self._burst = max(1.0, rate * BURST_SECONDS)
        self._clock = clock
        self._buckets: BoundedCache[str, _Bucket] = BoundedCache(MAX_BUCKETS)

    def take(self, name: str) -> float:
        """Count a request of a name; the seconds that it must wait for it, 0 if it need not."""
        at = self._clock()
        bucket = self._buckets.get(name) or _Bucket(self._burst, at)
        bucket.left = min(self._burst, bucket.left + (at - bucket.at) * self._rate)
        bucket.at = at
        self._buckets.set(name, bucket)
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= 1
        return 0.0


class ConcurrencyLimit:
    """Counts the running requests of each owner."""

    def __init__(self, most: int = MAX_RUNNING_OF_OWNER) -> None:
        self.most = most
        self._running: Counter[str] = Counter()

    @contextmanager
    def take(self, owner: str) -> Iterator[bool]:
        """Count one more running request during the block; False if the owner has `most` already."""
        if self._running[owner] >= self.most:
            yield False
            return
        self._running[owner] += 1
        try:
            yield True
        finally:
            self._running[owner] -= 1
            if not self._running[owner]:
                del self._running[owner]
