"""Commands on files of sessions: export, migrate-store, encrypt, decrypt."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.config_commands import write_settings
from contextstash.cli.console import echo
from contextstash.cli.options import DATABASE, SESSION, DatabaseType, find_session, opener_options
from contextstash.configuration.locations import KEY_SETTING
from contextstash.configuration.setting_layers import Layer
from contextstash.safety.sanitize import counted
from contextstash.stash_opener import StashOpener
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash
    from contextstash.transfer.transfer import Migrated
    from contextstash_storage.databases import Location
    from contextstash_storage.records import Native

PAGE_MESSAGES = 200
"""Messages in memory at a time."""


@click.command(epilog="Example: contextstash export 3f2a --with-secrets > session.jsonl")
@SESSION
@click.option("--messages", "only_messages", is_flag=True, help="Only the messages, as their provider writes them.")
@click.option("--with-secrets", is_flag=True, help="Print keys, tokens and passwords as they were recorded.")
@opener_options
def export(opener: StashOpener, session: str | None, only_messages: bool, with_secrets: bool) -> None:
    """Print a session as JSON lines. [default: the one with the newest message]

    contextstash import reads it without loss, if it was written with --with-secrets: otherwise masks stand in the place
    of keys and passwords. With --messages only the history, one message per line, with what only replies have (model,
    usage).
    """
    if with_secrets:
        opener = replace(opener, settings=opener.settings.over(Layer("--with-secrets", {"secrets": "off"})))

    async def write(stash: Stash) -> None:
        session_id = await find_session(stash, session)
        records = _messages(stash, session_id) if only_messages else stash.export_session(session_id)
        async for record in records:
            sys.stdout.write(json.dumps(record, separators=(",", ":")) + "\n")

    opener.run(write)


async def _messages(stash: Stash, session_id: str) -> AsyncIterator[Native]:
    first: int | None = 0
    while first is not None:
        page = await stash.read_messages(session_id, first=first, limit=PAGE_MESSAGES)
        for line in page.messages:
            yield line.message
        first = page.next_seq


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
    from contextstash.transfer.transfer import migrate_store

    async with await open_database(source) as opened, await open_database(target) as stored:
        return await migrate_store(opened, stored)


@click.command(epilog="Example: contextstash encrypt --key file:~/contextstash.key")
@click.option("--key", metavar="PLACE", help=f"The file with the key: file:PATH. [default: {KEY_SETTING}]")
@DATABASE
def encrypt(db: Location | None, key: str | None) -> None:
    """Encrypt the database file, and new ones from now on.

    If there is no such file yet, one is made. --key is written to your settings as encryption_key. End all
    clients first: nothing is changed while another process has the database open.
    """
    from contextstash.configuration.database import key_source
    from contextstash.configuration.encryption_key import read_key, read_or_make_key, shown
    from contextstash_storage.sqlite.conversion import convert
    from contextstash_storage.sqlite.database_file import begins_encrypted

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
    from contextstash.configuration.database import key_source
    from contextstash.configuration.encryption_key import read_key, shown
    from contextstash_storage.sqlite.conversion import convert
    from contextstash_storage.sqlite.database_file import begins_encrypted

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
