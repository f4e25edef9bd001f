"""What a deletion leaves of a session in the files of PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from contextstash_storage.postgres import open_postgres
from contextstash_storage.transaction import Address
from tests.storage.sqlite.test_deletion import SECRET, fill, others
from tests.support.postgres_server import database_name, new_store_address, server
from tests.support.stored_sessions import bodies

pytestmark = pytest.mark.postgres


def table_files(address: Address) -> Iterator[bytes]:
    """The files of a database's tables and indexes, as they are on the disk."""
    server().sql("CHECKPOINT")
    number = server().sql(f"SELECT oid FROM pg_database WHERE datname = '{database_name(address)}'")
    for path in sorted(Path(server().folder / "data" / "base" / number).iterdir()):
        if path.is_file():
            yield path.read_bytes()


def traces(address: Address, packed: bytes) -> dict[str, int]:
    """How often the secret is found, and the inner part of a large text in which it is packed."""
    kinds = {"plain": SECRET.encode(), "packed": packed}
    found = {name: sum(file.count(trace) for file in table_files(address)) for name, trace in kinds.items()}
    return {name: count for name, count in found.items() if count}


def packed_text(address: Address) -> bytes:
    """The inner part of a large text of the secret session as it is stored."""
    rows = "FROM segments JOIN sessions USING (session) WHERE session_id = 'secret' LIMIT 1"
    return bytes.fromhex(
        server().sql(f"SELECT encode(substr(contents, 200, 40), 'hex') {rows}", database_name(address))
    )


async def test_after_a_vacuum_no_table_or_index_holds_a_trace_of_a_deleted_session() -> None:
    address = new_store_address()
    async with await open_postgres(address) as store:
        await others(store)
        await fill(store, "secret")
        packed = packed_text(address)
        assert set(traces(address, packed)) == {"plain", "packed"}
        assert await store.delete_session("secret")
        assert not await store.search(SECRET)
        server().sql("VACUUM FULL", database_name(address))
        assert traces(address, packed) == {}
        assert [len(await bodies(store, f"kept {number}")) for number in range(4)] == [60] * 4
