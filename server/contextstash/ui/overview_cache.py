"""The overview, computed in the background: of many sessions it takes longer than a page may."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contextstash.process.background_tasks import BackgroundTasks
from contextstash.service.results import Overview

if TYPE_CHECKING:
    from contextstash.service.stash import Stash


class OverviewCache:
    """The last overview. One that is out of date is shown once more while the next one is computed."""

    def __init__(self) -> None:
        self._known: tuple[str, Overview] | None = None
        self._tasks = BackgroundTasks("the overview")
        self._computing: asyncio.Task[Overview] | None = None

    async def get(self, stash: Stash, mark: str) -> Overview:
        """The overview of a stash with this mark, or of one shortly before."""
        if self._known is not None and self._known[0] == mark:
            return self._known[1]
        if self._computing is None or self._computing.done():
            self._computing = self._tasks.start(self._compute(stash, mark))
        if self._known is not None:
            return self._known[1]
        return await asyncio.shield(self._computing)

    async def _compute(self, stash: Stash, mark: str) -> Overview:
        overview = await stash.overview()
        self._known = (mark, overview)
        return overview
