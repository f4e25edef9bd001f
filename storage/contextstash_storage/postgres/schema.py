"""The tables of a database in PostgreSQL, made by the first process that opens it."""

from __future__ import annotations

from importlib.resources import files

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.sql.version import VERSION, check_version

LOCK = 0x636F6E7465787473
"""The advisory lock of making tables: the letters `contexts`."""


async def make_tables(db: Connection) -> None:
    """Make the tables of a new database, within a transaction. Raises StoreVersionError for a database of another
    version."""
    version = await _version(db)
    if not version:
        await db.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        version = await _version(db)  # another process may have made them meanwhile
    check_version(version)
    if not version:
        await db.execute(files("contextstash_storage.postgres").joinpath("schema.sql").read_text(encoding="utf-8"))
        await db.execute("CREATE TABLE contextstash_version (version integer NOT NULL)")
        await db.execute("INSERT INTO contextstash_version VALUES ($1)", VERSION)


async def _version(db: Connection) -> int:
    if not await db.fetchval("SELECT to_regclass('contextstash_version') IS NOT NULL"):
        return 0
    return int(await db.fetchval("SELECT version FROM contextstash_version"))
