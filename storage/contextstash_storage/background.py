"""Deletions in the background, in pieces, each a transaction of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from contextstash_storage import hidden
from contextstash_storage.errors import StoreError
from contextstash_storage.transaction import Tx

PAUSE_SECONDS = 0.025
"""How long the database is left to others between two pieces. SQLite has no queue: who waits asks again every 1 to
25 ms in its first eighth of a second, and so meets the pause."""

AGAIN_SECONDS = 5.0
"""After how long work is tried again if the database was locked, the disk full or an older state still read."""

Result = TypeVar("Result")
TxWork = Callable[[Tx], Result]


class Database(Protocol):
    """An open database, which runs functions on transactions in threads of its own."""

    async def read(self, work: TxWork[Result], /) -> Result:
        """What `work` returns; all its reads see the same state."""

    async def write(self, work: TxWork[Result], /) -> Result:
        """What `work` returns, run as one transaction: committed durably, or rolled back."""

    async def write_together(self, make: Callable[[], TxWork[Result]], /) -> Result:
        """The same for what `make` makes on the database's thread, perhaps in a transaction with others."""

    async def forget(self, work: Background, has_words: bool, /) -> bool:
        """Overwrite what removed rows leave in the files; False if something of it stays."""

    async def close(self) -> None:
        """Close it, after what runs on it; closing again does nothing."""


class Background:
    """The work of one open database. What a killed process leaves is continued when the database is opened again."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._deleting = asyncio.Lock()
        self.closing = asyncio.Event()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def close(self) -> None:
        """Stop after the pieces that are being worked on."""
        self.closing.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _task(self, work: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Begin work that `close` waits for."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _pause(self, seconds: float) -> None:
        """Wait, at most until the work is to stop."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.closing.wait(), seconds)

    async def pieces(self, piece: TxWork[bool]) -> bool:
        """Do piece after piece until one says that it was the last; False if the work is to stop before that."""
        while not self.closing.is_set():
            if not await self._database.write(piece):
                return True
            await asyncio.sleep(PAUSE_SECONDS)
        return False

    # Deletions

    async def delete(self) -> bool:
        """Remove everything that is marked as deleted. False if some of it may still be in the files: it is tried again
        then. Cancelling the caller does not stop it."""
        finished = await asyncio.shield(self._task(self._deleted()))
        if not finished:
            self.delete_later(AGAIN_SECONDS)
        return finished

    def delete_later(self, seconds: float = 0.0) -> None:
        """Remove everything that is marked until that is done; begin in `seconds`."""
        if not self.closing.is_set():
            self._task(self._until_deleted(seconds))

    async def _until_deleted(self, seconds: float) -> None:
        await self._pause(seconds)
        while not self.closing.is_set() and not await self._deleted():
            await self._pause(AGAIN_SECONDS)

    async def _deleted(self) -> bool:
        async with self._deleting:
            try:
                return await self._all_removed()
            except StoreError:  # locked for too long, or the disk is full: the session is invisible all the same
                return False

    async def _all_removed(self) -> bool:
        await self._database.write(hidden.give_up_abandoned)
        if not await self.pieces(lambda tx: hidden.remove_some(tx, hidden.PIECE_SECONDS)):
            return False
        marks = await self._database.read(hidden.marks)
        if marks and not await self._database.forget(self, any(indexed for _, indexed in marks)):
            return False
        # Only now: whoever opens the database after a crash sees by the marks what is still to be done.
        await self._remove_marks(marks)
        return True

    async def _remove_marks(self, marks: Sequence[tuple[int, bool]]) -> None:
        if marks:
            await self._database.write(partial(hidden.remove_marks, found=marks))
