"""`contextstash import`: record the sessions of other programs from their own files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import StashOpener, database_options
from contextstash.cli.output import print_table
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

Advance = Callable[[str, int], None]
"""Called with the name of a transcript and how many more bytes of it were read."""


@dataclass(frozen=True)
class Imported:
    """The result for one transcript."""

    file: str
    session_id: str | None = None
    recorded: int = 0
    duplicates: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Found:
    """A transcript to import. `named`: the user named the file itself, not a folder that contains it."""

    path: Path
    named: bool
    size: int


EXPORT_PREFIX = b'{"contextstash_session":'


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@database_options
def import_files(opener: StashOpener, as_json: bool, paths: tuple[Path, ...], session: str | None) -> int:
    """Record the sessions in PATH: transcripts, folders of them, a client's own storage. Safe to repeat.

    Reads Claude Code, Codex, Gemini CLI, OpenCode, pi, Cline, Roo Code, VS Code, SWE-agent, OpenHands, files of
    OpenAI, Anthropic or Gemini messages, and exported sessions; the format is detected from the content. Other files
    in a folder are skipped.

    Exit code 1 if a file could not be read; the others are recorded.
    """
    found, failed = _transcripts(paths)

    async def work(stash: Stash) -> list[Imported | None]:
        with _progress(sum(item.size for item in found)) as advance:
            return [await _import_one(stash, item, session, advance) for item in found]

    imported = opener.run(work)
    results = [*(result for result in imported if result is not None), *failed]
    skipped = [item.path for item, result in zip(found, imported, strict=True) if result is None]
    if not results:
        raise BadInputError(f"No transcript in a recognized format in {' '.join(map(str, paths))}.")
    if as_json:
        import json

        click.echo(json.dumps([_without_absent(result) for result in results], ensure_ascii=False, indent=2))
    else:
        _print(results)
    done = [result for result in results if result.error is None]
    if done and not as_json and not any(result.recorded or result.duplicates for result in done):
        click.echo("Nothing new: all messages are already recorded.")
    if skipped:
        click.echo(f"Skipped {_files(len(skipped))}, such as {skipped[0]}", err=True)
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
    return Imported(str(item.path), result.session_id, result.recorded, result.duplicates)


async def _import_one(stash: Stash, item: Found, session: str | None, advance: Advance) -> Imported | None:
    """None if the file is not a transcript and the user named only its folder."""
    from contextstash.hosts.following.ingest import ingest
    from contextstash.hosts.readers.kinds import recognize

    done = 0

    def read(place: int) -> None:
        nonlocal done
        advance(item.path.name, max(0, min(place, item.size) - done))
        done = max(done, min(place, item.size))

    try:
        if is_export(item.path):
            return await _import_session(stash, item, session)
        reader = recognize(item.path)
    except BadInputError as error:
        advance(item.path.name, item.size)
        return Imported(str(item.path), error=str(error)) if item.named else None
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    try:
        report = await ingest(stash, item.path, reader=reader, on_progress=read)
    except ContextstashError as error:
        return Imported(str(item.path), error=str(error))
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    finally:
        read(item.size)
    return Imported(str(item.path), report.session_id, report.recorded, report.duplicates)


def _files(count: int) -> str:
    return "1 file that is not a transcript" if count == 1 else f"{count:,} files that are not transcripts"


def _without_absent(result: Imported) -> dict[str, object]:
    return {name: value for name, value in asdict(result).items() if value is not None}


def _print(results: Sequence[Imported]) -> None:
    done = [result for result in results if result.error is None]
    if done:
        rows = [(result.session_id, result.recorded, result.duplicates, result.file) for result in done]
        print_table(["session", "recorded", "duplicates", "file"], rows)
    for result in results:
        if result.error:
            click.echo(f"Not imported: {result.file}: {' '.join(result.error.split())}", err=True)


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
