"""The server's stash: opened at first use, so that the server starts quickly, and always closed at the end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from contextstash.stash import Stash

OpenStash = Callable[[], Awaitable["Stash"]]

MAX_CLOSE_SECONDS = 10.0
"""How long closing may take before the process ends anyway: as long as the store waits for another process. What was
acknowledged is already durable."""


class LazyStash:
    """Opens one stash when it is first asked for, shared by all connections of a server."""

    def __init__(self, open_stash: OpenStash) -> None:
        self._open = open_stash
        self._stash: Stash | None = None
        self._lock = anyio.Lock()

    async def get(self) -> Stash:
        """The open stash. If opening it raises, this raises the same, and the next call tries again."""
        async with self._lock:
            if self._stash is None:
                with anyio.CancelScope(shield=True):  # cancelled halfway, the store's thread would keep running
                    self._stash = await self._open()
            assert self._stash is not None
            return self._stash

    async def aclose(self) -> None:
        """Close the stash if it is open."""
        stash, self._stash = self._stash, None
        if stash is not None:
            with anyio.move_on_after(MAX_CLOSE_SECONDS, shield=True):
                await stash.close()
