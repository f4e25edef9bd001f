"""The locations of the database and of the settings files on a user's machine."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash_storage.databases import location_of

if TYPE_CHECKING:
    from contextstash_storage.databases import Location

SETTINGS_FILE = "contextstash.toml"
KEY_SETTING = "encryption_key"
"""The setting that says where the key of the database is."""
AGENTS_FOLDER = "agents"
AGENT_ENDINGS = (".yaml", ".yml")


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


def agent_files(folder: Path, agent: str) -> list[Path]:
    """The files in a folder that may hold settings for one agent. Empty if the name could lead to another folder."""
    if not agent or agent.startswith(".") or any(character in agent for character in "/\\\0:"):
        return []
    return [folder / AGENTS_FOLDER / f"{agent}{ending}" for ending in AGENT_ENDINGS]


def has_settings(environment: Mapping[str, str], project: Path, agent: str) -> bool:
    """Whether a variable or a file may hold settings for an agent; no file is opened, so that a hook stays fast."""
    if any(name.startswith("CONTEXTSTASH_") and name != "CONTEXTSTASH_DB" for name in environment):
        return True
    return any(
        os.path.lexists(path)
        for at in (user_config_folder(), project)
        for path in (at / SETTINGS_FILE, *agent_files(at, agent))
    )
