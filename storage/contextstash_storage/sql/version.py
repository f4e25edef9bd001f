"""The version of the tables, the same in every kind of database."""

from __future__ import annotations

from contextstash_storage.errors import StoreVersionError

VERSION = 15
"""Databases of versions below were made before the first release."""


def check_version(version: int) -> None:
    """Raise StoreVersionError if a database with tables is not of this program's version."""
    if version > VERSION:
        raise StoreVersionError(
            f"The database is of version {version}, this contextstash knows up to {VERSION}. Upgrade contextstash,"
            " or name another database with --db."
        )
    if 0 < version < VERSION:
        raise StoreVersionError(
            f"The database is of version {version}, this contextstash reads version {VERSION}. Export its sessions with"
            " the contextstash that made it (contextstash export), and import them into a new database."
        )
