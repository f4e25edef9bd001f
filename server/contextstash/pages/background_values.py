"""A value of the whole database, computed in the background: of many sessions that takes longer than a page may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from contextstash.base.background_tasks import BackgroundTasks

if TYPE_CHECKING:
    from contextstash.stash import Stash

Value = TypeVar("Value")


class Computed(Generic[Value]):
    """The last value. One that is out of date is shown once more while the next one is computed."""

    def __init__(self, name: str, compute: Callable[[Stash], Awaitable[Value]]) -> None:
        self._compute = compute
        self._known: tuple[str, Value] | None = None
        self._tasks = BackgroundTasks(name)
        self._computing: asyncio.Task[Value] | None = None

    async def get(self, stash: Stash, mark: str) -> Value:
        """The value of a stash with this mark, or of one shortly before."""
        computing = self._started(stash, mark)
        return self._known[1] if self._known else await asyncio.shield(computing)

    def known(self, stash: Stash, mark: str) -> Value | None:
        """The same without waiting: None as long as the first one is computed."""
        self._started(stash, mark)
        return self._known[1] if self._known else None

    def _started(self, stash: Stash, mark: str) -> asyncio.Task[Value]:
        is_known = self._known is not None and self._known[0] == mark
        if self._computing is None or (self._computing.done() and not is_known):
            self._computing = self._tasks.start(self._run(stash, mark))
        return self._computing

    async def _run(self, stash: Stash, mark: str) -> Value:
        value = await self._compute(stash)
        self._known = (mark, value)
        return value
