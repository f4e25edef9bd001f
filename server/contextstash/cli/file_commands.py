"""Commands on files of sessions: import, export, migrate-store, encrypt, decrypt."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.console import echo, echo_json, print_table
from contextstash.cli.options import DATABASE, SESSION, DatabaseType, database_options, find_session, opener_options
from contextstash.cli.setup_commands import write_settings
from contextstash.configuration.database import KEY_SETTING
from contextstash.configuration.setting_layers import Layer
from contextstash.safety.sanitize import counted
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash.transfer import Migrated
    from contextstash_storage.databases import Location


@click.command(epilog="Example: contextstash export 3f2a --with-secrets > session.jsonl")
@SESSION
@click.option("--with-secrets", is_flag=True, help="Print keys, tokens and passwords as they were recorded.")
@opener_options
def export(opener: StashOpener, session: str | None, with_secrets: bool) -> None:
    """Print a session as JSON lines. [default: the one with the newest message]

    contextstash import reads it without loss, if it was written with --with-secrets: otherwise masks stand in the place
    of keys and passwords.
    """
    if with_secrets:
        opener = replace(opener, settings=opener.settings.over(Layer("--with-secrets", {"secrets": "off"})))

    async def write(stash: Stash) -> None:
        async for record in stash.export_session(await find_session(stash, session)):
            sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")

    opener.run(write)


MAX_NAMED = 10
"""Of the sessions that could not be copied, this many are named."""


@click.command("migrate-store", epilog="Example: contextstash migrate-store ~/sessions.db postgresql://me@host/stash")
@click.argument("source", type=DatabaseType())
@click.argument("target", type=DatabaseType())
def migrate_store(source: Location, target: Location) -> int:
    """Copy all sessions of the database SOURCE into TARGET, and compare them by checksum.

    Each is a file or postgresql://…. SOURCE is not changed. Run it again to continue, or to check. Exit code 1 if a
    session of TARGET differs.
    """
    if isinstance(source, Path) and not source.exists():
        raise BadInputError(f"There is no database {source}.")
    if source == target:
        raise BadInputError("SOURCE and TARGET are the same database.")
    done = asyncio.run(_migrate(source, target))
    click.echo(f"Copied {counted(done.copied, 'session')}, verified by checksum; {done.already:,} were there already.")
    for name, reason in list(done.failed.items())[:MAX_NAMED]:
        click.echo(f"Not copied: {name}: {reason}", err=True)
    if done.failed:
        click.echo(
            f"{len(done.failed):,} sessions were not copied, and nothing of them was changed in {target}. To copy one"
            " again, delete it there and run this again.",
            err=True,
        )
    return 1 if done.failed else 0


async def _migrate(source: Location, target: Location) -> Migrated:
    from contextstash.configuration.database import open_database
    from contextstash.transfer import migrate_store

    async with await open_database(source) as opened, await open_database(target) as stored:
        return await migrate_store(opened, stored)


@click.command(epilog="Example: contextstash encrypt --key file:~/contextstash.key")
@click.option("--key", metavar="PLACE", help=f"The file with the key: file:PATH. [default: {KEY_SETTING}]")
@DATABASE
def encrypt(db: Location | None, key: str | None) -> None:
    """Encrypt the database file, and new ones from now on.

    If the file is missing, it is made. --key is written to your settings as encryption_key. End all
    clients first: nothing is changed while another process has the database open.
    """
    from contextstash.configuration.database import key_source, read_key, read_or_make_key, shown
    from contextstash_storage.database_file import begins_encrypted, convert

    path, known = _file(db), key_source(os.environ)
    place = key or known
    if place is None:
        raise BadInputError("Where shall the key be? Pass --key file:PATH.")
    if known not in (None, place):
        raise BadInputError(
            f"{KEY_SETTING} is {shown(known or '')} already. To change the key: contextstash decrypt, then encrypt."
        )
    # A key that is lost is not replaced: the database would stay closed, and nobody would see why.
    made = read_key(place) if begins_encrypted(path) else read_or_make_key(place)
    if known is None:  # first: whoever is killed now still knows where the key of an encrypted database is
        write_settings({KEY_SETTING: place})
    try:
        done = convert(path, made, encrypt=True)
    except ContextstashError:
        # The database is as it was, and the setting would keep every command from opening it.
        if known is None and not begins_encrypted(path):
            write_settings({KEY_SETTING: None})
        raise
    echo(f"Encrypted {path}." if done else f"{path} is encrypted already.")
    echo(f"Its key is in {place}. Keep a copy of the key in another place: without it, all of the database is lost.")


@click.command()
@DATABASE
def decrypt(db: Location | None) -> None:
    """Decrypt the database file, so that it can be read without a key. End all clients first.

    The setting encryption_key is removed from your own settings: new databases are not encrypted any more.
    """
    from contextstash.configuration.database import key_source, read_key, shown
    from contextstash_storage.database_file import begins_encrypted, convert

    path, place = _file(db), key_source(os.environ)
    if place is None and not begins_encrypted(path):
        echo(f"{path} is not encrypted.")
        return
    if place is None:
        raise BadInputError(f"No setting says where the key is: contextstash config set {KEY_SETTING}=file:PATH.")
    done = convert(path, read_key(place), encrypt=False)
    echo(f"Decrypted {path}." if done else f"{path} is not encrypted.")
    write_settings({KEY_SETTING: None})
    if (still := key_source(os.environ)) is not None:
        echo(
            f"{KEY_SETTING} is still set, to {shown(still)}: new databases are encrypted until you remove it.", err=True
        )


def _file(database: Location | None) -> Path:
    path = StashOpener(database).file
    if path is None:
        raise BadInputError("Only a file can be encrypted here; for PostgreSQL, encrypt the disk of its server.")
    if not path.exists():
        raise BadInputError(f"There is no database {path} yet. With the setting {KEY_SETTING} it is made encrypted.")
    return path.resolve()


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

    places = [each.files.folder() for each in clients() if each.files is not None]
    there = tuple(place for place in places if place.exists())
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
