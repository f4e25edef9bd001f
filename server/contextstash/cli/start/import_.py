"""`contextstash import`: record the sessions of other programs from their own files."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import echo, echo_json, print_table
from contextstash.context.text.counts import counted
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

Advance = Callable[[str, int], None]
"""Called with the name of a transcript and how many more bytes of it were read."""


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


EXPORT_PREFIX = b'{"contextstash_session":'

NO_TRANSCRIPT = "no transcript"
EXPORT = "an exported session"
SAMPLE = "the sample session of contextstash demo"


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@database_options
def import_files(opener: StashOpener, as_json: bool, paths: tuple[Path, ...], session: str | None) -> int:
    """Record the sessions in PATH: transcripts, folders of them, a client's own storage. Safe to repeat.

    Reads Claude Code, Codex, Gemini CLI, OpenCode, pi, Cline, Roo Code, VS Code, SWE-agent, OpenHands, files of
    OpenAI, Anthropic or Gemini messages, and exported sessions; the format is detected from the content. Other files
    in a folder are skipped, and so are exported sessions. Nothing is pruned or compacted.

    Exit code 1 if a file could not be read; the others are recorded.
    """
    found, failed = _transcripts(paths)

    async def work(stash: Stash) -> list[Imported | Skipped]:
        with _progress(sum(item.size for item in found)) as advance:
            results = [await _import_one(stash, item, session, advance) for item in found]
        return await _with_known(stash, results)

    imported = opener.run(work)
    results = [*(each for each in imported if isinstance(each, Imported)), *failed]
    skipped = [each for each in imported if isinstance(each, Skipped)]
    if not results:
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


async def _import_one(stash: Stash, item: Found, session: str | None, advance: Advance) -> Imported | Skipped:
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
        advance(item.path.name, item.size)
        return Imported(str(item.path), error=str(error)) if item.named else Skipped(item.path, NO_TRANSCRIPT)
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    try:
        report = await ingest(stash, item.path, reader=reader, on_progress=read, reduce=False)
    except ContextstashError as error:
        return Imported(str(item.path), error=str(error))
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    finally:
        read(item.size)
    return Imported(str(item.path), report.session_id, report.recorded, duplicates=report.duplicates)


def _copy_or_sample(item: Found) -> str | None:
    """What a file in a folder is if it could be imported, but is no session of the user's own clients."""
    from contextstash.demo.steps import sample_file

    if is_export(item.path):
        return EXPORT
    sample = sample_file()
    is_sample = item.path.name == sample.name and item.path.is_file() and item.path.read_bytes() == sample.read_bytes()
    return SAMPLE if is_sample else None


async def _with_known(stash: Stash, results: Sequence[Imported | Skipped]) -> list[Imported | Skipped]:
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
    recorded = sum(each.recorded for each in done)
    known = sum({each.session_id: each.known for each in done}.values())
    if not recorded:
        return f"Nothing new: {counted(known, 'message')} already recorded." if known else "Nothing new."
    sessions = len({each.session_id for each in done if each.recorded})
    before = f", {known:,} known before" if known else ""
    return f"Recorded {counted(recorded, 'message')} in {counted(sessions, 'session')}{before}."


def _nothing_found(paths: Sequence[Path], skipped: Sequence[Skipped]) -> str:
    exports = [str(each.path) for each in skipped if each.what == EXPORT]
    named = f" An exported session is imported if you name its file: {exports[0]}" if exports else ""
    return f"No transcript in a recognized format in {' '.join(map(str, paths))}.{named}"


def _skipped_lines(skipped: Sequence[Skipped]) -> Iterator[str]:
    """One line for each reason, with an example."""
    others = [each.path for each in skipped if each.what == NO_TRANSCRIPT]
    exports = [each.path for each in skipped if each.what == EXPORT]
    if others:
        are = "that is not a transcript" if len(others) == 1 else "that are not transcripts"
        yield f"Skipped {counted(len(others), 'file')} {are}, such as {others[0]}"
    if exports:
        yield f"Skipped {counted(len(exports), 'exported session')}; to import one, name its file, such as {exports[0]}"
    yield from (f"Skipped {each.what}: {each.path}" for each in skipped if each.what == SAMPLE)


def _without_absent(result: Imported) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value is not None}


def _print(results: Sequence[Imported]) -> None:
    done = [result for result in results if result.error is None]
    if done:
        rows = [(result.session_id, result.recorded, result.known, result.file) for result in done]
        print_table(["session", "new", "known before", "file"], rows)
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

    columns = (TextColumn("{task.description:.40}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Importing", total=total)
        yield lambda name, size: progress.update(task, advance=size, description=name)
