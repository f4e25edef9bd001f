"""The stash as the server holds it: opened at first use, so that starting is quick; closed for certain."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

from contextstash_storage.errors import StoreError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

OpenStash = Callable[[], Awaitable["Stash"]]

CLOSING_SECONDS = 10.0
"""How long closing may take before the process ends without it; what was acknowledged is durable anyway."""


class LazyStash:
    """Opens one stash when it is first asked for, shared by all connections of a server."""

    def __init__(self, open_stash: OpenStash) -> None:
        self._open = open_stash
        self._stash: Stash | None = None
        self._lock = anyio.Lock()
        self._users = 0

    async def get(self) -> Stash:
        """The open stash. Raises what opening raises; the next call then tries again."""
        async with self._lock:
            stash = self._stash
            if stash is None:
                with anyio.CancelScope(shield=True):  # a half-opened store would leave its thread behind
                    stash = await self._open()
                self._stash = stash
            if stash is None:
                raise StoreError("Opening the session store was interrupted; try again.")
            return stash

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Held as long as a server runs; when the last one stops, the stash is closed."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await self._close()

    async def _close(self) -> None:
        stash, self._stash = self._stash, None
        if stash is not None:
            with anyio.move_on_after(CLOSING_SECONDS, shield=True):
                await stash.close()
