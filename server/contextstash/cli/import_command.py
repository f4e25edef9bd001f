"""`contextstash import`: record the sessions of other programs from their own files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.console import echo, echo_json, print_table
from contextstash.cli.options import database_options
from contextstash.outputs.counts import counted
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash

EXPORT_PREFIX = b'{"contextstash_session":'

DELETED, NO_TRANSCRIPT, EXPORT = "deleted here", "without a transcript", "with an exported session"
"""Why files in a folder are not imported."""

INTERRUPTED = 130
"""The exit code of shells for a process that SIGINT ended: 128 + 2."""


@dataclass(frozen=True)
class Imported:
    """The result for one transcript.

    `duplicates` are messages that were known already; a file that has not changed is not read. `skipped` is why a file
    in a folder was not imported; one that the user named is imported, or has an `error`.
    """

    file: str
    session_id: str | None = None
    recorded: int = 0
    duplicates: int = 0
    error: str | None = None
    skipped: str | None = None


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
    is_all, paths = not paths, paths or _own_folders()
    found, failed = _transcripts(paths)

    async def work(stash: Stash) -> list[Imported]:
        bar = click.progressbar(found.items(), label="Importing", file=sys.stderr, hidden=not sys.stderr.isatty())
        with bar as files:
            return [await _import(stash, path, named, session) for path, named in files]

    try:
        imported = opener.run(work)
    except KeyboardInterrupt:
        click.echo("Stopped; run the same command again to continue. What was recorded stays.", err=True)
        return INTERRUPTED
    results = [*(each for each in imported if not each.skipped), *failed]
    # A client keeps other files beside its sessions, which nobody asked for.
    skipped = [each for each in imported if each.skipped and not (is_all and each.skipped == NO_TRANSCRIPT)]
    if not results and all(each.skipped != DELETED for each in skipped):
        raise BadInputError(f"No transcript in a recognized format in {' '.join(map(str, paths))}.")
    if as_json:
        echo_json([{name: value for name, value in asdict(each).items() if value is not None} for each in results])
    else:
        _print(results)
    _print_skipped(skipped)
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


def _transcripts(given: Sequence[Path]) -> tuple[dict[Path, bool], list[Imported]]:
    """The transcripts in the given files and folders, each with whether the user named the file itself, and those that
    could not be read."""
    from contextstash.clients.follow import transcripts_in

    found: dict[Path, bool] = {}
    failed = []
    for path in given:
        try:
            for place in transcripts_in(path):
                found[place] = place == path or found.get(place, False)
        except OSError as error:
            failed.append(Imported(str(path), error=f"cannot be read: {error.strerror or error}"))
    return found, failed


async def _import(stash: Stash, path: Path, named: bool, session: str | None) -> Imported:
    from contextstash.clients.follow import ingest, recognize

    try:
        if is_export(path):
            if not named:
                return Imported(str(path), skipped=EXPORT)
            return await _import_session(stash, path, session)
        try:
            reader = recognize(path)
        except BadInputError:
            if not named:
                return Imported(str(path), skipped=NO_TRANSCRIPT)
            raise
        report = await ingest(stash, path, reader=reader, reduce=False, wanted=named)
        if report.deleted:
            return Imported(str(path), skipped=DELETED)
        session_id = report.session_id
        if not (session_id is None or report.recorded or (await stash.read_session(session_id)).counters.messages):
            raise BadInputError("no message in it can be recorded; the lines above say why.")
    except ContextstashError as error:
        return Imported(str(path), error=str(error))
    except OSError as error:
        return Imported(str(path), error=f"cannot be read: {error.strerror or error}")
    return Imported(str(path), report.session_id, report.recorded, duplicates=report.duplicates)


def is_export(path: Path) -> bool:
    """Whether a file is an exported session, by its first line. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_PREFIX)) == EXPORT_PREFIX


async def _import_session(stash: Stash, path: Path, session: str | None) -> Imported:
    with path.open(encoding="utf-8") as lines:
        try:
            result = await stash.import_session(lines, session_id=session)
        except UnicodeDecodeError as error:
            raise BadInputError("The file is not UTF-8 text.") from error
    return Imported(str(path), result.session_id, result.recorded, duplicates=result.duplicates)


def _print(results: Sequence[Imported]) -> None:
    new = [result for result in results if result.recorded]
    if new:
        rows = [(result.session_id, result.recorded, Path(result.file).name) for result in new]
        print_table(["session", "new", "file"], rows)
    for result in results:
        if result.error:
            echo(f"Not imported: {result.file}: {' '.join(result.error.split())}", err=True)
    read = {result.session_id for result in results if result.error is None}
    if read:
        recorded = counted(sum(result.recorded for result in new), "message")
        others = len(read - {result.session_id for result in new})
        click.echo(
            f"Recorded {recorded} in {counted(len(read) - others, 'session')}; nothing new in {others:,} others."
        )


def _print_skipped(skipped: Sequence[Imported]) -> None:
    """One line for each reason, with an example."""
    for reason in (DELETED, NO_TRANSCRIPT, EXPORT):
        if files := [each.file for each in skipped if each.skipped == reason]:
            echo(f"Skipped {counted(len(files), 'file')} {reason}; to import one, name it: {files[0]}", err=True)
