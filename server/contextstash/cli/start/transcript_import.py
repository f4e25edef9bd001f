"""The transcripts of `contextstash import`: what each is, and what became of it. Two processes record many."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from logging.handlers import QueueHandler
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

from contextstash.process.own_modules import import_nothing_from_here
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.cli.options import StashOpener
    from contextstash.service.stash import Stash

Advance = Callable[[str, int], None]
"""Called with the name of a transcript and how many more bytes of it were read."""

WORTH_BYTES = 12_000_000
"""Unread bytes from which a second process is started: that takes about a second, in which one process records 6 MB."""

BATCH_BYTES = 6_000_000
"""Bytes of transcripts that the second process takes at a time: it opens the database each time, which takes 50 ms. A
larger batch at the end would leave this process without work."""

EXPORT_PREFIX = b'{"contextstash_session":'

NO_TRANSCRIPT = "no transcript"
EXPORT = "an exported session"
DELETED = "a session that was deleted here"
SAMPLE = "the sample session of contextstash demo"


@dataclass(frozen=True)
class Imported:
    """The result for one transcript.

    `known` is how many messages its session had before this command, `duplicates` how many of them were read again: a
    file that has not changed is not read.
    """

    file: str
    session_id: str | None = None
    recorded: int = 0
    known: int = 0
    duplicates: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Found:
    """A transcript to import. `named`: the user named the file itself, not a folder that contains it."""

    path: Path
    named: bool
    size: int


@dataclass(frozen=True)
class Skipped:
    """A file in a folder that was not imported, and what it is instead of a transcript."""

    path: Path
    what: str


Result = Imported | Skipped


async def import_all(
    opener: StashOpener, stash: Stash, found: Sequence[Found], session: str | None, advance: Advance
) -> list[Result]:
    """The results, in the order of the transcripts. If much is new, a second process records some of them; those of one
    session are recorded by one process, in their order."""

    async def here(item: Found) -> Result:
        return await import_one(stash, item, session, advance)

    if len(found) < 2 or await _unread_bytes(stash, found) < WORTH_BYTES:
        return [await here(item) for item in found]
    families = deque(await asyncio.to_thread(_by_family, found))
    results: dict[Found, Result] = {}

    async def there() -> None:
        while families:
            batch = families.pop()
            while families and sum(item.size for item in batch) < BATCH_BYTES:
                batch += families.pop()
            done = await _in_second_process(opener, batch, session)
            for place, item in enumerate(batch):
                results[item] = done[place] if done else await here(item)
                advance(item.path.name, item.size if done else 0)

    second = asyncio.create_task(there())
    try:
        while families:
            results |= {item: await here(item) for item in families.popleft()}
        await second
    finally:
        second.cancel()
        await asyncio.wait([second])
    return [results[item] for item in found]


async def _unread_bytes(stash: Stash, found: Sequence[Found]) -> int:
    """About how much is new: known transcripts are not read again."""
    cursors = [await stash.read_cursor(str(item.path.resolve())) for item in found]
    read = [cursor.offset if cursor is not None else 0 for cursor in cursors]
    return sum(max(0, item.size - known) for item, known in zip(found, read, strict=True))


def _by_family(found: Sequence[Found]) -> list[list[Found]]:
    """The transcripts of each session and its sub-agents. First come those whose sessions their beginnings do not
    name."""
    from contextstash.hosts.readers.kinds import session_at_head

    families: dict[str | None, list[Found]] = {None: []}
    for item in found:
        try:
            name = session_at_head(item.path)
        except (BadInputError, OSError):
            name = None
        families.setdefault(None if name is None else name.partition(".")[0], []).append(item)
    return [family for family in families.values() if family]


async def _in_second_process(opener: StashOpener, batch: list[Found], session: str | None) -> list[Result] | None:
    """The results of a batch. None if the process breaks: what it has recorded is known when the batch is recorded
    again."""
    import anyio
    import anyio.to_process

    import_nothing_from_here()
    try:
        results, logged = await anyio.to_process.run_sync(_recorded, opener, batch, session, cancellable=True)
    except anyio.BrokenWorkerProcess:
        return None
    for record in logged:
        logging.getLogger(record.name).handle(record)
    return results


def _recorded(
    opener: StashOpener, batch: list[Found], session: str | None
) -> tuple[list[Result], list[logging.LogRecord]]:
    """Runs in the second process, which has no standard error: the warnings are returned too."""
    logged: SimpleQueue[logging.LogRecord] = SimpleQueue()
    handler = QueueHandler(logged)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)

    async def work() -> list[Result]:
        async with opener.stash() as stash:
            return [await import_one(stash, item, session, lambda name, size: None) for item in batch]

    try:
        return asyncio.run(work()), [logged.get() for _ in range(logged.qsize())]
    finally:
        logging.getLogger().removeHandler(handler)


async def import_one(stash: Stash, item: Found, session: str | None, advance: Advance) -> Result:
    """Skipped is only what was found in a folder: a file that the user named is imported, or the result is an error."""
    from contextstash.hosts.following.ingest import ingest
    from contextstash.hosts.readers.kinds import recognize

    done = 0

    def read(place: int) -> None:
        nonlocal done
        advance(item.path.name, max(0, min(place, item.size) - done))
        done = max(done, min(place, item.size))

    try:
        if not item.named and (what := _copy_or_sample(item)) is not None:
            return Skipped(item.path, what)
        if is_export(item.path):
            return await _import_session(stash, item, session)
        reader = recognize(item.path)
    except BadInputError as error:
        read(item.size)
        return Imported(str(item.path), error=str(error)) if item.named else Skipped(item.path, NO_TRANSCRIPT)
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    try:
        report = await ingest(stash, item.path, reader=reader, on_progress=read, reduce=False, wanted=item.named)
    except ContextstashError as error:
        return Imported(str(item.path), error=str(error))
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    finally:
        read(item.size)
    if report.deleted:
        return Skipped(item.path, DELETED)
    return Imported(str(item.path), report.session_id, report.recorded, duplicates=report.duplicates)


def is_export(path: Path) -> bool:
    """Whether a file is an exported session, by its first line. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_PREFIX)) == EXPORT_PREFIX


async def _import_session(stash: Stash, item: Found, session: str | None) -> Imported:
    with item.path.open(encoding="utf-8") as lines:
        try:
            result = await stash.import_session(lines, session_id=session)
        except UnicodeDecodeError as error:
            raise BadInputError("The file is not UTF-8 text.") from error
    return Imported(str(item.path), result.session_id, result.recorded, duplicates=result.duplicates)


def _copy_or_sample(item: Found) -> str | None:
    """The reason to skip a file that could be imported, but is not a session of the user's own clients; None to
    import."""
    from contextstash.demo.sample import sample_file

    if is_export(item.path):
        return EXPORT
    sample = sample_file()
    is_sample = item.path.name == sample.name and item.path.is_file() and item.path.read_bytes() == sample.read_bytes()
    return SAMPLE if is_sample else None
