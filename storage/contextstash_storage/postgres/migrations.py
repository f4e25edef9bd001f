"""Numbered migrations of a PostgreSQL database, applied by one process at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence

from contextstash_storage.postgres.connection import Connection
from contextstash_storage.sql.migrations import check_version, migrations_of

LOCK = 0x636F6E7465787473
"""The advisory lock of migrations: the letters `contexts`."""

_TABLE = re.compile(r"CREATE TABLE (\w+) \(.*?\) PARTITIONED", re.DOTALL)


def migrations() -> list[tuple[int, str]]:
    """Number and SQL of every migration, in order."""
    return migrations_of("contextstash_storage.postgres")


async def migrate(connection: Connection, partitions: int) -> None:
    """Bring a database up to date, within a transaction: other processes wait for it. New tables get so many
    partitions. Raises StoreVersionError if the database is newer than this program."""
    known = migrations()
    newest = known[-1][0]
    version = await _version(connection)
    if version < newest:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        version = await _version(connection)  # another process may have migrated it meanwhile
    check_version(version, newest)
    for number, sql in known:
        if number > version:
            await connection.execute(with_partitions(sql, partitions))
            await connection.execute("UPDATE contextstash_version SET version = $1", number)


async def _version(connection: Connection) -> int:
    found = await connection.fetchval("SELECT to_regclass('contextstash_version') IS NOT NULL")
    if not found:
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        await connection.execute("CREATE TABLE IF NOT EXISTS contextstash_version (version integer NOT NULL)")
        await connection.execute(
            "INSERT INTO contextstash_version SELECT 0 WHERE NOT EXISTS (SELECT FROM contextstash_version)"
        )
    return int(await connection.fetchval("SELECT version FROM contextstash_version"))


def with_partitions(sql: str, partitions: int) -> str:
    """A migration whose new tables are divided into so many partitions by hash of owner and session; 0 for none."""
    names: Sequence[str] = _TABLE.findall(sql)
    if not partitions:
        return sql.replace(" PARTITIONED;", ";")
    parts = [
        f"CREATE TABLE {name}_{number:04} PARTITION OF {name}"
        f" FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number});"
        for name in names
        for number in range(partitions)
    ]
    return sql.replace(" PARTITIONED;", " PARTITION BY HASH (owner, session_id);") + "\n".join(parts)
