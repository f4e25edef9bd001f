"""`contextstash import`: recorded sessions of other programs, read from where those keep them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import Opening, database_options
from contextstash.cli.output import print_table
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

Advance = Callable[[str, int], None]
"""Told a transcript's name and how many more bytes of it are done."""


@dataclass(frozen=True)
class Imported:
    """What became of one transcript."""

    file: str
    session_id: str | None = None
    recorded: int = 0
    duplicates: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Found:
    """A transcript to import. `named`: the user named it, and did not only name a folder that it is in."""

    path: Path
    named: bool
    size: int


EXPORT_BEGINS = b'{"contextstash_session":'


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@database_options
def import_files(opening: Opening, as_json: bool, paths: tuple[Path, ...], session: str | None) -> int:
    """Record the sessions in PATH: transcripts, folders of them, a client's own storage. Safe to repeat.

    Known are Claude Code, Codex, Gemini CLI, OpenCode, pi, Cline, Roo Code, VS Code, SWE-agent, OpenHands, files of
    OpenAI or Anthropic messages, and sessions that contextstash exported; the kind is told by the content. Other files
    in a folder are passed over.

    Exit code 1 if a file could not be read; the others are recorded all the same.
    """
    found, failed = _transcripts(paths)

    async def work(stash: Stash) -> list[Imported | None]:
        with _progress(sum(item.size for item in found)) as advance:
            return [await _import_one(stash, item, session, advance) for item in found]

    imported = opening.run(work)
    results = [*(result for result in imported if result is not None), *failed]
    passed = [item.path for item, result in zip(found, imported, strict=True) if result is None]
    if not results:
        raise BadInputError(f"{' '.join(map(str, paths))} holds no transcript that is known here.")
    if as_json:
        import json

        click.echo(json.dumps([_without_absent(result) for result in results], ensure_ascii=False, indent=2))
    else:
        _print(results)
    done = [result for result in results if result.error is None]
    if done and not as_json and not any(result.recorded or result.duplicates for result in done):
        click.echo("Nothing new: all of it was recorded before.")
    if passed:
        click.echo(f"Passed over, being no transcripts: {len(passed)}, such as {passed[0]}", err=True)
    return 1 if any(result.error for result in results) else 0


def _transcripts(given: Sequence[Path]) -> tuple[list[Found], list[Imported]]:
    """The transcripts in the files and folders named, each once, and what could not be looked into."""
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
    """About how large a transcript is, in bytes: that of a folder, or in a database, is not looked up."""
    try:
        return max(path.stat().st_size, 1)
    except OSError:
        return 1


def is_export(path: Path) -> bool:
    """Whether a file is a session that was exported, by its first line. Raises OSError if it can't be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_BEGINS)) == EXPORT_BEGINS


async def _import_session(stash: Stash, item: Found, session: str | None) -> Imported:
    with item.path.open(encoding="utf-8") as lines:
        try:
            result = await stash.import_session(lines, session_id=session)
        except UnicodeDecodeError as error:
            raise BadInputError("It is not UTF-8 text.") from error
    return Imported(str(item.path), result.session_id, result.recorded, result.duplicates)


async def _import_one(stash: Stash, item: Found, session: str | None, advance: Advance) -> Imported | None:
    """None if a file in a folder is no transcript."""
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
    """A bar on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name, size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description:.40}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("Importing", total=total)
        yield lambda name, size: progress.update(task, advance=size, description=name)
