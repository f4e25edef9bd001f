"""Progress of one call, passed on at a bounded rate: the newest of what a server sends faster than that."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import anyio

PER_SECOND = 5
"""Notifications of one call: as many as a person can follow. Each unbounded one kept other servers' calls waiting, by
20 seconds if one server sent 20,000."""

MAX_MESSAGE_CHARS = 1_000

Send = Callable[[float, float | None, str | None], Awaitable[None]]


class NewestProgress:
    """Called with each notification; `close` sends what is still held, and ends it."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._sent_at: deque[float] = deque(maxlen=PER_SECOND)
        self._newest: tuple[float, float | None, str | None] | None = None
        self._waiting = False

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        self._newest = (progress, total, message and message[:MAX_MESSAGE_CHARS])
        if self._waiting:
            return
        self._waiting = True
        try:
            if len(self._sent_at) == PER_SECOND:
                await anyio.sleep(self._sent_at[0] + 1.0 - anyio.current_time())
            await self.close()
        finally:
            self._waiting = False

    async def close(self) -> None:
        """Send the newest notification, if it has not been sent."""
        newest, self._newest = self._newest, None
        if newest is not None:
            self._sent_at.append(anyio.current_time())
            await self._send(*newest)
