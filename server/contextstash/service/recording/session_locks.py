"""One lock for each session, kept only while a task holds it or waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class _Counted:
    """`users` counts the holder and the waiting tasks: if the lock were deleted while one of them has it, the next
    caller would get a second lock for the same session."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class SessionLocks:
    """Locks by session."""

    def __init__(self) -> None:
        self._locks: dict[str, _Counted] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def of(self, session_id: str) -> AsyncIterator[None]:
        """Holds the session's lock for the block."""
        counted = self._locks.setdefault(session_id, _Counted())
        counted.users += 1
        try:
            async with counted.lock:
                yield
        finally:
            counted.users -= 1
            if not counted.users:
                del self._locks[session_id]
