"""Where the database, its key and the settings files of a user are; and the user's database, opened."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.base.files import PRIVATE, read_regular
from contextstash_storage.databases import location_of
from contextstash_storage.errors import StoreError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.store import SessionStore

SETTINGS_FILE = "contextstash.toml"
KEY_SETTING = "encryption_key"
"""The setting that says where the key of the database is."""


def default_database() -> Location:
    """The database if none is named: `CONTEXTSTASH_DB`, else `sessions.db` in the user's data folder."""
    named = os.environ.get("CONTEXTSTASH_DB")
    if named:
        return location_of(named)
    return _user_data_folder() / "sessions.db"


def data_folder(database: Location | None = None) -> Path:
    """The folder for logs and other files that belong to a database: the one that it is in, or the user's data folder
    if it is on a server."""
    location = database or default_database()
    return location.parent if isinstance(location, Path) else _user_data_folder()


def _user_data_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("contextstash", appauthor=False)


def user_config_folder() -> Path:
    """The folder of the user's own settings files."""
    from platformdirs import user_config_path

    return user_config_path("contextstash", appauthor=False)


def has_settings(environment: Mapping[str, str], project: Path) -> bool:
    """Whether a variable or a file may hold settings; no file is opened, so that a hook stays fast."""
    if any(name.startswith("CONTEXTSTASH_") and name != "CONTEXTSTASH_DB" for name in environment):
        return True
    return any(os.path.lexists(folder / SETTINGS_FILE) for folder in (user_config_folder(), project))


HOOK_BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call."""


async def open_database(location: Location | None = None, **options: Any) -> SessionStore:
    """The store in a database, by default the one that is used if none is named; see `open_store` for the options.
    Raises StoreError if it cannot be used."""
    from contextstash_storage.databases import open_store

    return await open_store(location or default_database(), find_key=database_key, **options)


def database_key() -> bytes | None:
    """The user's key, None if the user has set none. Raises StoreError if it cannot be read."""
    source = key_source(os.environ)
    return None if source is None else read_key(source)


def key_source(environment: Mapping[str, str]) -> str | None:
    """Where the key is, by the environment or else the user's own file. The other layers of settings are not looked at:
    a file may be opened before they are known, and a project must not name a place."""
    given = environment.get(f"CONTEXTSTASH_{KEY_SETTING.upper()}")
    path = user_config_folder() / SETTINGS_FILE
    try:
        if given is None and KEY_SETTING in (text := path.read_text("utf-8")):
            import tomllib  # few have a key, and a hook has no time

            found = tomllib.loads(text).get(KEY_SETTING)
            given = None if found is None else str(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read, and may say where the key of the database is: {error}.") from error
    return None if given is None or given.lower() in ("", "none") else given


MAX_KEY_BYTES = 1_000
"""How much of a file is read; a key has 64 characters."""


def read_key(source: str) -> bytes:
    """The key from its place. Raises StoreError, which names the place and never what was found there."""
    path = _path(source)
    try:
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise StoreError(f"Other users may read the key in {path}: chmod 600 {path}")
        found = read_regular(path, MAX_KEY_BYTES).decode("ascii", "replace").strip()
    except FileNotFoundError:
        found = ""
    except OSError as error:
        raise StoreError(f"The key in {path} cannot be read: {error.strerror}.") from error
    if not re.fullmatch(r"[0-9a-fA-F]{64}", found):
        what = "something that is not a key of 64 hexadecimal digits" if found else "no key"
        raise StoreError(f"{KEY_SETTING} names {what} ({source}): put it there.")
    return bytes.fromhex(found)


def read_or_make_key(source: str) -> bytes:
    """The key from its place. If its file is missing, one with a new key is made first, on the disk before anything
    is encrypted with it."""
    path = _path(source)
    if not path.exists():
        import secrets

        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE), "w") as file:
                file.write(f"{secrets.token_hex(32)}\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StoreError(f"The key cannot be written to {path}: {error.strerror}.") from error
    return read_key(source)


def _path(source: str) -> Path:
    kind, _, place = source.partition(":")
    if kind != "file" or not place:  # not shown, since it may be a key
        raise StoreError(f"{KEY_SETTING} must be file:PATH.")
    path = Path(place).expanduser()
    if not path.is_absolute():  # hooks and servers run in folders of their own
        raise StoreError(f"{KEY_SETTING} must name a file by its whole path, not {place}.")
    return path
