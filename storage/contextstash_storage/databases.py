"""Opens the database that a text names: a file, or the address of a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from contextstash_storage.errors import BadInputError, StoreError
from contextstash_storage.transaction import BUSY_SECONDS

if TYPE_CHECKING:
    from contextstash_storage.database_file import FindKey
    from contextstash_storage.store import SessionStore
    from contextstash_storage.transaction import Address

    Location: TypeAlias = Path | Address
    """Where a database is."""


def location_of(text: str) -> Location:
    """The database that a text names: an address of PostgreSQL, else a file. Raises BadInputError for a bad address."""
    if text.lower().startswith(("postgresql:", "postgres:")):
        from contextstash_storage.transaction import parse_address

        return parse_address(text)
    if "://" in text:  # another database, which would become a file of this name; it may hold a password
        raise BadInputError(f"'{text.split('://')[0]}://…' is neither a database file nor a postgresql:// address.")
    return Path(text).expanduser()


def name_of(location: Location) -> str:
    """The text that names a database; it may hold a password."""
    return str(location) if isinstance(location, Path) else location.url


async def open_store(
    location: Location, *, busy_seconds: float = BUSY_SECONDS, find_key: FindKey = lambda: None, is_brief: bool = False
) -> SessionStore:
    """Open a database for the sessions of this machine's user. A transaction waits `busy_seconds` for those of other
    processes. What is used briefly, as a hook is, opens a file in less time. Raises StoreError if it cannot be used."""
    if isinstance(location, Path):
        from contextstash_storage.sqlite import open_sqlite

        return await open_sqlite(location, busy_seconds=busy_seconds, find_key=find_key, is_brief=is_brief)
    try:
        from contextstash_storage.postgres import open_postgres
    except ModuleNotFoundError as error:
        raise StoreError(
            f"A database in PostgreSQL needs the package {error.name}: install the extra, in the"
            " checkout, with pipx install --force '.[postgres]', or with pip where contextstash is installed."
        ) from error
    return await open_postgres(location, busy_seconds=busy_seconds)
