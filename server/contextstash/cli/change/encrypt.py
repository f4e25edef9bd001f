"""`contextstash encrypt` and `decrypt`: change the database file to an encrypted one, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from contextstash.cli.options import DATABASE
from contextstash.cli.output import echo
from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

SETTING = "encryption_key"

PLACES = "keyring or file:PATH"


@click.command(epilog="Example: contextstash encrypt --key keyring")
@click.option("--key", metavar="PLACE", help=f"Where the key is: {PLACES}. [default: {SETTING}]")
@DATABASE
@click.pass_context
def encrypt(context: click.Context, db: Location | None, key: str | None) -> None:
    """Encrypt the database file, and new ones from now on.

    If the keyring or the file has no key yet, one is made. --key is written to your settings as encryption_key. End all
    clients first: nothing is changed while another process has the database open.
    """
    from contextstash.cli.change.config import set_
    from contextstash.configuration.encryption_key import read_key, read_or_make_key, shown
    from contextstash_storage.sqlite.conversion import convert, readable_files
    from contextstash_storage.sqlite.database_file import begins_encrypted

    path, known = _file(db), _known_place()
    place = key or known
    if place is None:
        raise BadInputError(f"Where shall the key be? Pass --key: {PLACES}.")
    if known not in (None, place):
        raise BadInputError(
            f"{SETTING} is {shown(known or '')} already. To change the key: contextstash decrypt, then encrypt."
        )
    # A key that is lost is not replaced: the database would stay closed, and nobody would see why.
    made = read_key(place) if begins_encrypted(path) else read_or_make_key(place)
    if known is None:
        context.invoke(set_, pairs=(f"{SETTING}={place}",))
    try:
        done = convert(path, made, encrypt=True)
    except ContextstashError:
        if known is None:  # the database is as it was, and the setting would keep every command from opening it
            context.invoke(set_, pairs=(), unset=(SETTING,))
        raise
    echo(f"Encrypted {path}." if done else f"{path} is encrypted already.")
    echo("Keep a copy of the key in another place: without it, all of the database is lost.")
    if left := readable_files(path.parent):
        names = ", ".join(str(file) for file in left)
        echo(f"Other databases in that folder can still be read: {names}", err=True)


@click.command()
@DATABASE
def decrypt(db: Location | None) -> None:
    """Decrypt the database file, so that it can be read without a key. End all clients first."""
    from contextstash.configuration.encryption_key import read_key
    from contextstash_storage.sqlite.conversion import convert

    path, place = _file(db), _known_place()
    if place is None:
        raise BadInputError(f"No setting says where the key is: contextstash config set {SETTING}=… ({PLACES}).")
    done = convert(path, read_key(place), encrypt=False)
    echo(f"Decrypted {path}." if done else f"{path} is not encrypted.")
    echo(f"New databases are encrypted until you remove the setting: contextstash config set --unset {SETTING}")


def _file(database: Location | None) -> Path:
    from contextstash.configuration.locations import default_database

    path = database or default_database()
    if not isinstance(path, Path):
        raise BadInputError("Only a file can be encrypted here; for PostgreSQL, encrypt the disk of its server.")
    if not path.exists():
        raise BadInputError(f"There is no database {path} yet. With the setting {SETTING} it is made encrypted.")
    return path.resolve()


def _known_place() -> str | None:
    import os

    from contextstash.configuration.encryption_key import key_source

    return key_source(os.environ)
