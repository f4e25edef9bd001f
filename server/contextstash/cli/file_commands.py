"""Commands on files of sessions: import, export, migrate-store, encrypt, decrypt."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from contextstash.cli.console import echo, echo_json, print_table
from contextstash.cli.options import DATABASE, JSON, SESSION, database, find_session, opener_options
from contextstash.cli.setup_commands import write_settings
from contextstash.configuration.database import KEY_SETTING
from contextstash.configuration.setting_layers import Layer
from contextstash.safety.sanitize import counted
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.clients.follow import IngestReport
    from contextstash.results import CopyResult
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
        masks = False
        async for record in stash.export_session(await find_session(stash, session)):
            line = json.dumps(record, separators=(",", ":"))
            sys.stdout.write(f"{line}\n")
            masks = masks or "masked\\u203a" in line  # ‹masked›, as JSON has it
        if masks:
            click.echo("Masks stand in the place of keys and passwords; to export these too: --with-secrets", err=True)

    opener.run(write)


@click.command("migrate-store", epilog="Example: contextstash migrate-store ~/sessions.db postgresql://me@host/stash")
@click.argument("source", type=database)
@click.argument("target", type=database)
def migrate_store(source: Location, target: Location) -> int:
    """Copy all sessions of the database SOURCE into TARGET, and compare them there.

    Each is a file or postgresql://…. SOURCE is not changed. Run it again to continue, or to check. Exit code 1 if a
    session of TARGET differs.
    """
    if isinstance(source, Path) and not source.exists():
        raise BadInputError(f"There is no database {source}.")
    if source == target:
        raise BadInputError("SOURCE and TARGET are the same database.")
    from contextstash.configuration.database import open_database
    from contextstash.transfer import migrate_store

    async def migrate() -> Migrated:
        async with await open_database(source) as opened, await open_database(target) as stored:
            return await migrate_store(opened, stored)

    done = asyncio.run(migrate())
    click.echo(f"Copied {counted(done.copied, 'session')}, each compared; {done.already:,} were there already.")
    for name, reason in done.failed.items():
        click.echo(f"Not copied, and not changed there: {name}: {reason}", err=True)
    if done.failed:
        click.echo("To copy one again, delete it in TARGET and run this again.", err=True)
    return 1 if done.failed else 0


@click.command(epilog="Example: contextstash encrypt --key file:~/contextstash.key")
@click.option("--key", metavar="PLACE", help=f"The file with the key: file:PATH. [default: {KEY_SETTING}]")
@DATABASE
def encrypt(db: Location | None, key: str | None) -> None:
    """Encrypt the database file, and new ones from now on.

    If the file is missing, it is made. --key is written to your settings as encryption_key. End all
    clients first: nothing is changed while another process has the database open.
    """
    from contextstash.configuration.database import key_source, read_key, read_or_make_key
    from contextstash_storage.database_file import begins_encrypted, convert

    path, known = _file(db), key_source(os.environ)
    place = key or known
    if place is None:
        raise BadInputError("Where shall the key be? Pass --key file:PATH.")
    if known not in (None, place):
        # Not which: what stands there may be a key itself.
        raise BadInputError(
            f"{KEY_SETTING} is set to another place. To change the key: contextstash decrypt, then encrypt."
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
    from contextstash.configuration.database import key_source, read_key
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
    if key_source(os.environ) is not None:
        echo(f"{KEY_SETTING} is still set in the environment: new databases are encrypted until it is gone.", err=True)


def _file(location: Location | None) -> Path:
    from contextstash.configuration.database import default_database

    path = location or default_database()
    if not isinstance(path, Path):
        raise BadInputError("Only a file can be encrypted here; for PostgreSQL, encrypt the disk of its server.")
    if not path.exists():
        raise BadInputError(f"There is no database {path} yet. With the setting {KEY_SETTING} it is made encrypted.")
    return path.resolve()


@click.command("import")
@click.argument("paths", metavar="[PATH...]", nargs=-1, type=click.Path(path_type=Path))
@click.option("--session", metavar="NEW_ID", help="The id under which an exported session is stored here.")
@opener_options
@JSON
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

    async def work(stash: Stash) -> list[dict[str, Any] | None]:
        bar = click.progressbar(found.items(), label="Importing", file=sys.stderr, hidden=not sys.stderr.isatty())
        with bar as files:
            return [await _imported(stash, path, itself, session) for path, itself in files]

    imported = opener.run(work)
    results = [each for each in imported if each is not None]
    skipped = [path for path, each in zip(found, imported, strict=True) if each is None]
    if as_json:
        echo_json(results)
    else:
        _print(results)
    if skipped and named:  # beside its sessions a client keeps other files, which were not asked for
        what = "without a transcript, deleted here, or exported"
        echo(f"Skipped {counted(len(skipped), 'file')} {what}; to import one, name it: {skipped[0]}", err=True)
    return 1 if any("error" in each for each in results) else 0


def _own_folders() -> tuple[Path, ...]:
    """The folders in which the clients on this machine keep their transcripts. Raises BadInputError for none."""
    from contextstash.clients.client import clients

    there = tuple(folder for each in clients() if each.files and (folder := each.files.folder()).exists())
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


async def _imported(stash: Stash, path: Path, named: bool, session: str | None) -> dict[str, Any] | None:
    """The result for one transcript: how many messages are new, and how many were known already (none if the file has
    not changed), or its error. None if a file in a folder holds no transcript, an exported session, or one that was
    deleted here; one that the user named is imported."""
    try:
        report = await _import(stash, path, named, session)
    except (ContextstashError, OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        return {"file": str(path), "recorded": 0, "duplicates": 0, "error": why}
    if report is None:
        return None
    counts = {"recorded": report.recorded, "duplicates": report.duplicates}
    return {"file": str(path), **({"session_id": report.session_id} if report.session_id else {}), **counts}


async def _import(stash: Stash, path: Path, named: bool, session: str | None) -> IngestReport | CopyResult | None:
    from contextstash.clients.follow import ingest, recognize

    if _is_export(path):
        if not named:
            return None
        with path.open(encoding="utf-8") as lines:
            return await stash.import_session(lines, session_id=session)
    if session is not None:
        raise BadInputError("--session is for an exported session: the id of a transcript is its client's.")
    try:
        reader = recognize(path)
    except BadInputError:
        if not named:
            return None
        raise
    report = await ingest(stash, path, reader=reader, reduce=False, wanted=named)
    found = report.session_id
    if found is not None and not report.recorded and not (await stash.read_session(found)).counters.messages:
        raise BadInputError("no message in it can be recorded; the lines above say why.")
    return None if report.deleted else report


def _is_export(path: Path) -> bool:
    """Whether a file is an exported session, by its first line."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(100).startswith(b'{"contextstash_session":')


def _print(results: Sequence[Mapping[str, Any]]) -> None:
    """A table of what is new, a line for each error, and the sum."""
    new = [each for each in results if each["recorded"]]
    if new:
        rows = [(each["session_id"], each["recorded"], Path(each["file"]).name) for each in new]
        print_table(["session", "new", "file"], rows)
    for each in results:
        if "error" in each:
            echo(f"Not imported: {each['file']}: {' '.join(each['error'].split())}", err=True)
    recorded = counted(sum(each["recorded"] for each in new), "message")
    others = {each.get("session_id") for each in results if "error" not in each} - {each["session_id"] for each in new}
    click.echo(f"Recorded {recorded} in {counted(len(new), 'session')}; nothing new in {len(others):,} others.")
