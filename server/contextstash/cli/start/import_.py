"""`contextstash import`: record the sessions of other programs from their own files."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections import Counter, deque
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import echo, echo_json, print_table
from contextstash.cli.start.transcript_import import (
    DELETED,
    EXPORT,
    NO_TRANSCRIPT,
    SAMPLE,
    Advance,
    Found,
    Imported,
    Result,
    Skipped,
    import_one,
)
from contextstash.context.text.counts import counted
from contextstash.display.visible_text import visible
from contextstash.process.own_modules import import_nothing_from_here
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.cli.options import StashOpener
    from contextstash.service.stash import Stash

SIGN_BYTES = 2_000_000
"""Unread bytes among the first transcripts that show that much is new. Half a second of work: with less, a second
process would start in vain."""

WORTH_BYTES = 10_000_000
"""Bytes that must be left for a second process: it starts in about a second, in which one process records 6 MB."""

BATCH_BYTES = 6_000_000
"""Bytes of transcripts that the second process takes at a time: it opens the database each time, which takes 50 ms. A
larger batch at the end would leave this process without work."""

FIRST, SECOND = "first", "second"
"""The processes."""


@dataclass(frozen=True)
class Remark:
    """A line that the second process logged about a transcript."""

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
        """The next transcript for a process, None if all are taken."""
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
    """The beginning of the id that a session and its sub-agents have in common."""
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


if TYPE_CHECKING:
    from contextstash.service.stash import Stash

INTERRUPTED = 130
"""The exit code of shells for a process that SIGINT ended: 128 + 2."""

MAX_ROWS = 30
"""Transcripts that the table lists: a screen of them. --json lists all."""


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@database_options
def import_files(opener: StashOpener, as_json: bool, paths: tuple[Path, ...], session: str | None) -> int:
    """Record the sessions in PATH: transcripts, folders of them, a client's own storage. Safe to repeat.

    Reads Claude Code, Codex, Gemini CLI, OpenCode, pi, Cline, Roo Code, VS Code, SWE-agent, OpenHands, files of
    OpenAI, Anthropic or Gemini messages, and exported sessions; the format is detected from the content. Other files
    in a folder are skipped, and so are exported sessions and those that were deleted here in the last 30 days.
    Nothing is pruned or compacted.

    Exit code 1 if a file could not be read; the others are recorded.
    """
    found, failed = _transcripts(paths)

    async def work(stash: Stash) -> list[Result]:
        with _progress(sum(item.size for item in found)) as advance:
            results = await ImportQueue(opener, stash, session, advance).record(found)
        return await _with_known(stash, results)

    try:
        imported = opener.run(work)
    except KeyboardInterrupt:
        click.echo("Stopped; run the same command again to continue. What was recorded stays.", err=True)
        return INTERRUPTED
    results = [*(each for each in imported if isinstance(each, Imported)), *failed]
    skipped = [each for each in imported if isinstance(each, Skipped)]
    if not results and all(each.what != DELETED for each in skipped):
        raise BadInputError(_nothing_found(paths, skipped))
    if as_json:
        echo_json([_without_absent(result) for result in results])
    else:
        _print(results)
    done = [result for result in results if result.error is None]
    if done and not as_json:
        click.echo(_total(done))
    for line in _skipped_lines(skipped):
        echo(line, err=True)
    return 1 if any(result.error for result in results) else 0


def _transcripts(given: Sequence[Path]) -> tuple[list[Found], list[Imported]]:
    """The transcripts in the given files and folders, each once, and those that could not be read."""
    from contextstash.hosts.following.discovery import transcripts_in

    found: dict[Path, Found] = {}
    failed = []
    for path in given:
        try:
            for place in transcripts_in(path):
                known = found.get(place)
                named = place == path or (known is not None and known.named)
                found[place] = Found(place, named, _size(place))
        except OSError as error:
            failed.append(Imported(str(path), error=f"cannot be read: {error.strerror or error}"))
    return list(found.values()), failed


def _size(path: Path) -> int:
    """The approximate size of a transcript in bytes. Not looked up in a folder or a database: only the bar uses it."""
    try:
        return max(path.stat().st_size, 1)
    except OSError:
        return 1


async def _with_known(stash: Stash, results: Sequence[Result]) -> list[Result]:
    """The results with what their sessions had before this command."""
    recorded: Counter[str] = Counter()
    for each in results:
        if isinstance(each, Imported) and each.session_id is not None:
            recorded[each.session_id] += each.recorded
    known = {name: max(0, (await stash.read_session(name)).counters.messages - new) for name, new in recorded.items()}
    return [
        replace(each, known=known[each.session_id]) if isinstance(each, Imported) and each.session_id else each
        for each in results
    ]


def _total(done: Sequence[Imported]) -> str:
    """The line of totals: newly recorded messages, and those known before."""
    new = {each.session_id for each in done if each.recorded}
    recorded = sum(each.recorded for each in done)
    known = {each.session_id: each.known for each in done if each.known}
    old = {name: messages for name, messages in known.items() if name not in new}
    unchanged = f"{counted(len(old), 'session')} with {counted(sum(old.values()), 'message')}"
    if not recorded:
        return f"Nothing new: {unchanged} {_was(old)} already recorded." if old else "Nothing new."
    grown = sum(known.values()) - sum(old.values())
    before = f", which had {grown:,} before" if grown else ""
    rest = f" Already recorded: {unchanged}." if old else ""
    return f"Recorded {counted(recorded, 'message')} in {counted(len(new), 'session')}{before}.{rest}"


def _was(sessions: Sized) -> str:
    return "is" if len(sessions) == 1 else "are"


def _nothing_found(paths: Sequence[Path], skipped: Sequence[Skipped]) -> str:
    exports = [str(each.path) for each in skipped if each.what == EXPORT]
    named = f" An exported session is imported if you name its file: {exports[0]}" if exports else ""
    return f"No transcript in a recognized format in {' '.join(map(str, paths))}.{named}"


def _skipped_lines(skipped: Sequence[Skipped]) -> Iterator[str]:
    """One line for each reason, with an example."""
    others = [each.path for each in skipped if each.what == NO_TRANSCRIPT]
    exports = [each.path for each in skipped if each.what == EXPORT]
    from contextstash_storage.deleted_sessions import KEPT_DAYS

    deleted = [each.path for each in skipped if each.what == DELETED]
    if deleted:
        which = f"of {counted(len(deleted), 'session')} deleted here in the last {KEPT_DAYS} days"
        yield f"Skipped transcripts {which}; to bring one back, name its file: {deleted[0]}"
    if others:
        are = "that is not a transcript" if len(others) == 1 else "that are not transcripts"
        yield f"Skipped {counted(len(others), 'file')} {are}, such as {others[0]}"
    if exports:
        yield f"Skipped {counted(len(exports), 'exported session')}; to import one, name its file, such as {exports[0]}"
    yield from (f"Skipped {each.what}: {each.path}" for each in skipped if each.what == SAMPLE)


def _without_absent(result: Imported) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value is not None}


def _print(results: Sequence[Imported]) -> None:
    new = [result for result in results if result.error is None and result.recorded]
    if new:
        rows = [(result.session_id, result.recorded, result.known, result.file) for result in new[:MAX_ROWS]]
        print_table(["session", "new", "known before", "file"], rows)
    if len(new) > MAX_ROWS:
        click.echo(f"and {counted(len(new) - MAX_ROWS, 'more transcript')}; --json lists all")
    for result in results:
        if result.error:
            echo(f"Not imported: {result.file}: {' '.join(result.error.split())}", err=True)


@contextmanager
def _progress(total: int) -> Iterator[Advance]:
    """A progress bar on a terminal, nothing in a pipe."""
    if not sys.stderr.isatty():
        yield lambda name, size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    # A file's name is of whoever wrote the folder: no control characters, and no markup of rich.
    columns = (TextColumn("{task.description:.40}", markup=False), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Importing", total=total)
        yield lambda name, size: progress.update(task, advance=size, description=visible(name))
