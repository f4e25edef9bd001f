"""`contextstash import`: record the sessions of other programs from their own files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.console import echo, echo_json, print_table
from contextstash.cli.options import database_options
from contextstash.safety.sanitize import counted
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash

EXPORT_PREFIX = b'{"contextstash_session":'


@dataclass(frozen=True)
class Imported:
    """The result for one transcript.

    `duplicates` are messages that were known already; a file that has not changed is not read. A file in a folder is
    `skipped` if it holds no transcript, an exported session, or one that was deleted here; one that the user named is
    imported, or has an `error`.
    """

    file: str
    session_id: str | None = None
    recorded: int = 0
    duplicates: int = 0
    error: str | None = None
    skipped: bool = False


@click.command("import")
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@database_options
def import_files(opener: StashOpener, as_json: bool, paths: tuple[Path, ...], session: str | None) -> int:
    """Record the sessions in PATH: transcripts, folders of them, a client's own storage. Safe to repeat.

    Without PATH, the sessions of all clients on this machine, from their own folders.

    Reads Claude Code, Codex, Gemini CLI, OpenCode, pi, files of OpenAI, Anthropic or Gemini messages, and exported
    sessions; the format is detected from the content. Other files in a folder are skipped, and so are exported sessions
    and those that were deleted here in the last 30 days. Nothing is pruned or compacted.

    Exit code 1 if a file could not be read; the others are recorded.
    """
    if session is not None and len(paths) != 1:
        raise BadInputError("--session names one exported session: pass its file, and no other.")
    named, paths = bool(paths), paths or _own_folders()
    found = dict(sorted(_transcripts(paths), key=lambda each: each[1]))  # a file that was named itself counts as named
    if not found:
        raise BadInputError(f"There is no transcript in {' '.join(map(str, paths))}.")

    async def work(stash: Stash) -> list[Imported]:
        bar = click.progressbar(found.items(), label="Importing", file=sys.stderr, hidden=not sys.stderr.isatty())
        with bar as files:
            return [await _imported(stash, path, itself, session) for path, itself in files]

    imported = opener.run(work)
    results = [each for each in imported if not each.skipped]
    skipped = [each.file for each in imported if each.skipped]
    if as_json:
        listed = [{**asdict(each), "skipped": None} for each in results]
        echo_json([{name: value for name, value in each.items() if value is not None} for each in listed])
    else:
        _print(results)
    if skipped and named:  # beside its sessions a client keeps other files, which were not asked for
        what = "without a transcript, deleted here, or exported"
        echo(f"Skipped {counted(len(skipped), 'file')} {what}; to import one, name it: {skipped[0]}", err=True)
    return 1 if any(result.error for result in results) else 0


def _own_folders() -> tuple[Path, ...]:
    """The folders in which the clients on this machine keep their transcripts. Raises BadInputError for none."""
    from contextstash.clients.client import clients

    places = [each.files.folder(Path.home()) for each in clients() if each.files is not None]
    there = tuple(place for place in places if place is not None and place.exists())
    if not there:
        raise BadInputError("No client has kept a session here: name a transcript, or a folder of them.")
    for place in there:
        echo(f"Reading {place}", err=True)
    return there


def _transcripts(given: Sequence[Path]) -> Iterator[tuple[Path, bool]]:
    """The files to read, each with whether the user named the file itself. One that is not there fails when it is
    read."""
    from contextstash.clients.follow import transcripts_in

    for path in given:
        try:
            yield from ((place, place == path) for place in transcripts_in(path))
        except OSError:
            yield path, True


async def _imported(stash: Stash, path: Path, named: bool, session: str | None) -> Imported:
    """The result of an import; an error of it is part of the result."""
    try:
        return await _import(stash, path, named, session)
    except ContextstashError as error:
        return Imported(str(path), error=str(error))
    except OSError as error:
        return Imported(str(path), error=f"cannot be read: {error.strerror or error}")
    except UnicodeDecodeError:
        return Imported(str(path), error="The file is not UTF-8 text.")


async def _import(stash: Stash, path: Path, named: bool, session: str | None) -> Imported:
    from contextstash.clients.follow import ingest, recognize

    if _is_export(path):
        if not named:
            return Imported(str(path), skipped=True)
        with path.open(encoding="utf-8") as lines:
            result = await stash.import_session(lines, session_id=session)
        return Imported(str(path), result.session_id, result.recorded, result.duplicates)
    if session is not None:
        raise BadInputError("--session is for an exported session: the id of a transcript is its client's.")
    try:
        reader = recognize(path)
    except BadInputError:
        if not named:
            return Imported(str(path), skipped=True)
        raise
    report = await ingest(stash, path, reader=reader, reduce=False, wanted=named)
    if report.deleted:
        return Imported(str(path), skipped=True)
    found = report.session_id
    if found is not None and not report.recorded and not (await stash.read_session(found)).counters.messages:
        raise BadInputError("no message in it can be recorded; the lines above say why.")
    return Imported(str(path), found, report.recorded, report.duplicates)


def _is_export(path: Path) -> bool:
    """Whether a file is an exported session, by its first line."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_PREFIX)) == EXPORT_PREFIX


def _print(results: Sequence[Imported]) -> None:
    """A table of what is new, a line for each error, and the sum."""
    new = [result for result in results if result.recorded]
    if new:
        print_table(
            ["session", "new", "file"], [(each.session_id, each.recorded, Path(each.file).name) for each in new]
        )
    for result in results:
        if result.error:
            echo(f"Not imported: {result.file}: {' '.join(result.error.split())}", err=True)
    recorded = counted(sum(result.recorded for result in new), "message")
    others = len({each.session_id for each in results if each.error is None} - {each.session_id for each in new})
    click.echo(f"Recorded {recorded} in {counted(len(new), 'session')}; nothing new in {others:,} others.")
