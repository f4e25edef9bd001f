"""Numbered migrations of a database: SQL files applied in order, each once."""

from __future__ import annotations

import re
from importlib.resources import files

from contextstash_storage.errors import StoreVersionError


def migrations_of(package: str) -> list[tuple[int, str]]:
    """Number and SQL of every migration of a store, in order."""
    found = []
    for file in files(package).joinpath("schema").iterdir():
        if match := re.fullmatch(r"(\d{4})_\w+\.sql", file.name):
            found.append((int(match[1]), file.read_text(encoding="utf-8")))
    return sorted(found)


def check_version(version: int, newest: int) -> None:
    """Raise StoreVersionError if a database is newer than this program."""
    if version > newest:
        raise StoreVersionError(
            f"The database is of version {version}, this contextstash knows up to {newest}. Upgrade contextstash,"
            " or name another database with --db."
        )
