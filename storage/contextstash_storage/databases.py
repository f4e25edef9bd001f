"""Opens the database that a text names: a file, or the address of a PostgreSQL server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from contextstash_storage.errors import StoreError

if TYPE_CHECKING:
    from contextstash_storage.postgres.address import Address
    from contextstash_storage.postgres.store import PostgresStore
    from contextstash_storage.sqlite.database_file import FindKey
    from contextstash_storage.store import SessionStore

    Location: TypeAlias = Path | Address
    """Where a database is."""

ADDRESS_SCHEMES = ("postgresql:", "postgres:")


def location_of(text: str) -> Location:
    """The database that a text names: an address of PostgreSQL, else a file. Raises BadInputError if it is an address
    that cannot be read."""
    if text.lower().startswith(ADDRESS_SCHEMES):
        from contextstash_storage.postgres.address import parse_address

        return parse_address(text)
    return Path(text).expanduser()


def name_of(location: Location) -> str:
    """The text that names a database; it may hold a password."""
    return str(location) if isinstance(location, Path) else location.url


async def open_store(
    location: Location,
    *,
    owner: str | None = None,
    busy_seconds: float | None = None,
    find_key: FindKey = lambda: None,
    is_brief: bool = False,
) -> SessionStore:
    """Open a database for the sessions of `owner`, by default those of this machine's user. A transaction waits
    `busy_seconds` for those of other processes, by default as long as its kind of store does. What is used briefly, as
    a hook is, opens a file in less time. Raises StoreError if the database cannot be used."""
    given: dict[str, Any] = {"owner": owner or None, "busy_seconds": busy_seconds}
    named = {name: value for name, value in given.items() if value is not None}
    if not isinstance(location, Path):
        return await _open_postgres(location, **named)
    from contextstash_storage.sqlite.store import open_sqlite

    return await open_sqlite(location, find_key=find_key, is_brief=is_brief, **named)


async def _open_postgres(address: Address, **given: Any) -> PostgresStore:
    try:
        from contextstash_storage.postgres.store import open_postgres
    except ModuleNotFoundError as error:
        raise StoreError(
            f"A database in PostgreSQL needs the package {error.name}: install the extra, with"
            " pip install --editable '.[postgres]' in the checkout."
        ) from error
    return await open_postgres(address, **given)
