"""Tasks that no caller waits for: kept until they end, and logged if they fail.

    tasks = BackgroundTasks("recording")
    tasks.start(record(messages))
    ...
    await tasks.idle()  # before the store is closed

A task that fails is logged by the kind of its error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

Result = TypeVar("Result")


class BackgroundTasks:
    """The running tasks. asyncio itself keeps only weak references, so that a task could end before its work does."""

    def __init__(self, name: str) -> None:
        """`name` says in the log what failed."""
        self._name = name
        self._running: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Start the work and return its task."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._ended)
        return task

    async def idle(self) -> None:
        """Wait until no task is running."""
        while self._running:
            await asyncio.wait(set(self._running))

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.warning("%s failed: %s", self._name, type(error).__name__)
