"""Databases of PostgreSQL for the same measurements: of a given server, else of one that is started for the run."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

SERVER = "own"
"""The value of the option that starts a server."""

UNSAFE = ("fsync", "full_page_writes", "synchronous_commit")
"""What the tests' server leaves out to be quick: here a commit is on the disk, as it is in SQLite."""


@contextmanager
def server_address(given: str) -> Iterator[str]:
    """The address of a server's first database: of the given one, or of a server that ends with the block."""
    if given != SERVER:
        yield given
        return
    from tests.support import postgres_server

    safe = tuple(each for each in postgres_server.SPEED if not each.startswith(UNSAFE))
    setattr(postgres_server, "SPEED", safe)  # noqa: B010 - its type names the length
    server = postgres_server.server()
    try:
        yield server.address("postgres")
    finally:
        server.end()


@asynccontextmanager
async def new_database(server: str) -> AsyncIterator[str]:
    """The address of an empty database, which is dropped at the end of the block."""
    async with _made(server, "template1") as address:
        yield address


@asynccontextmanager
async def copy_of(address: str) -> AsyncIterator[str]:
    """The address of a copy of a database, which is dropped at the end of the block."""
    async with _made(_named(address, "postgres"), urlsplit(address).path.strip("/")) as copy:
        yield copy


@asynccontextmanager
async def _made(server: str, template: str) -> AsyncIterator[str]:
    name = f"speed_{secrets.token_hex(4)}"
    await _run(server, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield _named(server, name)
    finally:
        await _run(server, f"DROP DATABASE {name} WITH (FORCE)")


async def analyzed(address: str) -> None:
    """Gather the statistics that PostgreSQL gathers itself within a minute after many rows were written."""
    await _run(address, "ANALYZE")


async def size(address: str) -> int:
    """The bytes of a database."""
    found: int = await _run(address, "SELECT pg_database_size(current_database())")
    return found


async def _run(address: str, statement: str) -> Any:
    import psycopg

    async with await psycopg.AsyncConnection.connect(address, autocommit=True) as connection:
        found = await connection.execute(statement)
        return (await found.fetchone() or (None,))[0] if found.description else None


def _named(address: str, database: str) -> str:
    """The address of another database of the same server."""
    return urlunsplit(urlsplit(address)._replace(path=f"/{database}"))
