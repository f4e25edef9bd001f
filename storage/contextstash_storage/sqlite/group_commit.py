"""Small writes that wait for the same lock are committed together: a commit waits for the disk, whatever it holds."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextstash_storage.errors import StoreBusyError
from contextstash_storage.sqlite.connection import Connection, Result, Work, in_transaction, store_error, translated

Made = Callable[[], Work[Result]]
"""Makes a work that writes."""

MAX_TOGETHER = 16
"""Writes of one commit: 16 messages of usual size take about 10 ms, in which other processes wait."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A write, and where its outcome goes."""

    make: Made[Any]
    outcome: asyncio.Future[Any]


@dataclass
class GroupCommit:
    """Writes of one connection. `lock` is what all its writers hold."""

    writer: Connection
    lock: asyncio.Lock
    _waiting: list[_Waiting] = field(default_factory=list)

    async def write(self, make: Made[Result]) -> Result:
        """What the work returns that `make` makes, run in a transaction with the writes that wait at the same time; if
        it fails, the others are committed all the same. `make` is called on the writer's thread before the transaction.
        The work may be run again, after what it wrote was rolled back."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(make, outcome))
        try:
            while not outcome.done():
                async with self.lock:
                    if not outcome.done():
                        # Cancelled callers must not keep the others from their outcomes.
                        await asyncio.shield(asyncio.ensure_future(self._commit()))
        except asyncio.CancelledError:
            outcome.cancel()
            raise
        return outcome.result()

    async def _commit(self) -> None:
        waiting = [each for each in self._waiting if not each.outcome.done()]
        group, self._waiting = waiting[:MAX_TOGETHER], waiting[MAX_TOGETHER:]
        try:
            found = await self.writer.run(lambda db: _run([each.make for each in group], db))
        except Exception as error:
            found = [error] * len(group)
        for each, result in zip(group, found, strict=True):
            if each.outcome.done():
                continue
            if isinstance(result, Exception):
                each.outcome.set_exception(result)
            else:
                each.outcome.set_result(result)


def _run(made: Sequence[Made[Any]], db: sqlite3.Connection) -> list[Any]:
    """What each returns, or the exception that it raises."""
    works = [_outcome(lambda _, make=make: make(), db) for make in made]  # type: ignore[misc]
    ready = [work for work in works if not isinstance(work, Exception)]
    if len(works) > 1 and len(ready) == len(works):
        try:
            return in_transaction(db, lambda db: [work(db) for work in ready])
        except Exception as error:
            # If one fails, all are rolled back and run again, each alone: that is rare, and shows which of them it was.
            # But if the lock was not to be had, each would wait for it as long again.
            if isinstance(error, sqlite3.Error) and isinstance(store_error(error), StoreBusyError):
                return [store_error(error) for _ in works]
    return [work if isinstance(work, Exception) else _alone(work, db) for work in works]


def _alone(work: Work[Any], db: sqlite3.Connection) -> Any:
    return _outcome(lambda db: in_transaction(db, work), db)


def _outcome(work: Work[Any], db: sqlite3.Connection) -> Any:
    try:
        return translated(work, db)
    except Exception as error:
        return error
