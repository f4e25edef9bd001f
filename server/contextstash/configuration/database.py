"""The user's database, opened; and where its key is if it is encrypted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from contextstash.configuration.locations import KEY_SETTING, SETTINGS_FILE, default_database, user_config_folder
from contextstash_storage.errors import StoreError

if TYPE_CHECKING:
    from contextstash_storage.databases import Location
    from contextstash_storage.store import SessionStore


def database_key() -> bytes | None:
    """The user's key, None if the user has set none. Raises StoreError if it cannot be read."""
    source = key_source(os.environ)
    if source is None:
        return None
    from contextstash.configuration.encryption_key import read_key  # few have a key, and a hook has no time

    return read_key(source)


def key_source(environment: Mapping[str, str]) -> str | None:
    """Where the key is, by the environment or else the user's own file. The other layers of settings are not looked at:
    a file may be opened before they are known, and a project must not name a place."""
    given = environment.get(f"CONTEXTSTASH_{KEY_SETTING.upper()}")
    if given is None:
        given = _in_settings(user_config_folder() / SETTINGS_FILE)
    return None if given is None or given.lower() in ("", "none") else given


def _in_settings(path: Path) -> str | None:
    """The setting in the user's file, which most users do not have: a hook has no time to import parsers."""
    try:
        text = path.read_text("utf-8")
        if KEY_SETTING not in text:
            return None
        import tomllib

        given = tomllib.loads(text).get(KEY_SETTING)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StoreError(f"{path} cannot be read, and may say where the key of the database is: {error}.") from error
    return None if given is None else str(given)


HOOK_BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call."""


async def open_database(location: Location | None = None, **options: Any) -> SessionStore:
    """The store in a database, by default the one that is used if none is named; see `open_store` for the options.
    Raises StoreError if it cannot be used."""
    from contextstash_storage.databases import open_store

    return await open_store(location or default_database(), find_key=database_key, **options)


async def open_briefly() -> SessionStore:
    """The user's database for a hook. Raises StoreError if it cannot be used."""
    return await open_database(busy_seconds=HOOK_BUSY_SECONDS, is_brief=True)
