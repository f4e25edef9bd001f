"""The transcripts of one `contextstash import`, recorded by this process and, if there are many, by a second one.

Most of the work is parsing, counting and compressing, for which Python uses one core a process. Each process records
whole transcripts into the database; SQLite's lock lets one of them write at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from contextstash.cli.start.transcript_import import Advance, Found, Imported, Result, import_one
from contextstash.process.own_modules import import_nothing_from_here
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.cli.options import StashOpener
    from contextstash.service.stash import Stash

SIGN_BYTES = 2_000_000
"""Unread bytes among the first transcripts that show that much is new. A guess: half a second of work."""

WORTH_BYTES = 10_000_000
"""Bytes that must be left for a second process: it starts in about a second, in which one process records 6 MB."""

BATCH_BYTES = 6_000_000
"""Bytes of transcripts that the second process takes at a time: it opens the database each time, which takes 50 ms. A
larger batch at the end would leave this process without work."""

FIRST, SECOND = "first", "second"
"""The processes."""


@dataclass(frozen=True)
class Remark:
    """What was logged about a transcript in the second process."""

    logger: str
    level: int
    text: str


class ImportQueue:
    """Records transcripts, each once. Those of one session are recorded by one process, in their order."""

    def __init__(self, opener: StashOpener, stash: Stash, session: str | None, advance: Advance) -> None:
        self._opener = opener
        self._stash = stash
        self._session = session
        self._advance = advance
        self._results: dict[Found, Result] = {}
        self._turn = asyncio.Lock()
        self._waiting: deque[Found] = deque()
        self._left_to = {FIRST: deque[Found](), SECOND: deque[Found]()}
        self._process_of: dict[str, str] = {}
        self._unread = 0
        self._much = asyncio.Event()

    async def record(self, found: Sequence[Found]) -> list[Result]:
        """The results, in the order of the transcripts."""
        self._waiting.extend(found)
        second = asyncio.create_task(self._in_second_process())
        try:
            while (item := await self._next(FIRST)) is not None:
                await self._look_at(item)
                self._results[item] = await self._here(item)
            if self._much.is_set():
                await second
        finally:
            second.cancel()
            await asyncio.wait([second])
        return [self._results[item] for item in found]

    async def _look_at(self, item: Found) -> None:
        """Start the second process once there is much to read, and much left. Known transcripts are not read again."""
        if self._much.is_set() or len(self._waiting) < 2:
            return
        cursor = await self._stash.read_cursor(str(item.path.resolve()))
        self._unread += max(0, item.size - (cursor.offset if cursor is not None else 0))
        if self._unread >= SIGN_BYTES and sum(each.size for each in self._waiting) >= WORTH_BYTES:
            if (family := await asyncio.to_thread(_family_of, item)) is not None:
                self._process_of.setdefault(family, FIRST)
            self._much.set()

    async def _here(self, item: Found) -> Result:
        result = await import_one(self._stash, item, self._session, self._advance)
        if isinstance(result, Imported) and result.session_id is not None:
            self._process_of.setdefault(_family(result.session_id), FIRST)
        return result

    async def _next(self, process: str) -> Found | None:
        """The next transcript for a process, None if there is no more for it."""
        async with self._turn:
            if self._left_to[process]:
                return self._left_to[process].popleft()
            while self._waiting:
                item = self._waiting.popleft()
                owner = await self._owner(item, process)
                if owner == process:
                    return item
                self._left_to[owner].append(item)
            return None

    async def _owner(self, item: Found, process: str) -> str:
        """The process that records a transcript: the one that had an earlier transcript of its session."""
        if not self._much.is_set():
            return FIRST
        family = await asyncio.to_thread(_family_of, item)
        return FIRST if family is None else self._process_of.setdefault(family, process)

    async def _in_second_process(self) -> None:
        await self._much.wait()
        while batch := await self._batch():
            for item, result in zip(batch, await self._there(batch), strict=True):
                self._results[item] = result

    async def _batch(self) -> list[Found]:
        batch: list[Found] = []
        while sum(item.size for item in batch) < BATCH_BYTES and (item := await self._next(SECOND)) is not None:
            batch.append(item)
        return batch

    async def _there(self, batch: list[Found]) -> list[Result]:
        """The results of a batch from the second process. If it breaks, the batch is recorded by this one: what was
        recorded before is known by then."""
        import anyio
        import anyio.to_process

        import_nothing_from_here()
        try:
            results, remarks = await anyio.to_process.run_sync(
                _recorded, self._opener, batch, self._session, cancellable=True
            )
        except anyio.BrokenWorkerProcess:
            return [await self._here(item) for item in batch]
        for remark in remarks:
            logging.getLogger(remark.logger).log(remark.level, "%s", remark.text)
        for item in batch:
            self._advance(item.path.name, item.size)
        return results


def _family_of(item: Found) -> str | None:
    """The family of the session that a file of lines begins with; None if that is unknown: such transcripts are
    recorded in their order, by one process."""
    from contextstash.hosts.readers.kinds import session_at_head

    try:
        name = session_at_head(item.path)
    except (BadInputError, OSError):
        return None
    return None if name is None else _family(name)


def _family(session_id: str) -> str:
    """What a session and its sub-agents have in common."""
    return session_id.partition(".")[0]


@dataclass
class _Remarks(logging.Handler):
    """Keeps what is logged: the second process has no standard error."""

    kept: list[Remark] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.WARNING)

    __hash__ = object.__hash__

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(Remark(record.name, record.levelno, record.getMessage()))


def _recorded(opener: StashOpener, batch: list[Found], session: str | None) -> tuple[list[Result], list[Remark]]:
    """Runs in the second process."""
    remarks = _Remarks()
    logging.getLogger().addHandler(remarks)

    async def work() -> list[Result]:
        async with opener.stash() as stash:
            return [await import_one(stash, item, session, lambda name, size: None) for item in batch]

    try:
        return asyncio.run(work()), remarks.kept
    finally:
        logging.getLogger().removeHandler(remarks)
