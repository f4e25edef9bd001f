"""What only the store in PostgreSQL has: its tables, locks and errors."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from contextstash_storage import postgres as postgres_store
from contextstash_storage.databases import open_store
from contextstash_storage.errors import BadInputError, StoreBusyError, StoreError, StoreVersionError
from contextstash_storage.postgres import PostgresStore, open_postgres
from contextstash_storage.transaction import Tx
from tests.support.postgres_server import new_store_address, server
from tests.support.stored_sessions import SESSION, bodies, conversation, new_session, record, says

pytestmark = pytest.mark.postgres


async def opened() -> PostgresStore:
    return await open_postgres(new_store_address())


async def test_several_processes_may_open_a_new_database_at_once() -> None:
    address = new_store_address()
    server().sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", address.shown.rpartition("/")[2])
    stores = await asyncio.gather(*(open_postgres(address) for _ in range(4)))
    await new_session(stores[0])
    assert [session.session_id for session in await stores[3].list_sessions()] == [SESSION]
    for store in stores:
        await store.close()


async def test_a_database_of_a_newer_contextstash_is_refused() -> None:
    store = await opened()
    await store.database.write(lambda tx: tx.execute("UPDATE contextstash_version SET version = 99"))
    with pytest.raises(StoreVersionError, match="version 99"):
        await open_postgres(store.database.address)
    await store.close()


async def test_work_goes_on_when_the_server_has_ended_all_connections() -> None:
    store = await opened()
    await new_session(store)
    await record(store, *conversation(2), first_seq=0)
    server().sql(END_CONNECTIONS)
    await record(store, *conversation(3), first_seq=0)
    assert await bodies(store) == [message.body for message in conversation(3)]
    assert await store.acquire_lease(SESSION, "compaction", "mine", 60.0)
    await store.close()


END_CONNECTIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'contextstash'"
)


async def test_a_connection_that_ends_before_a_commit_is_said_of_writes_alone() -> None:
    store = await opened()
    ended: list[str] = []

    def work(_: Tx) -> int:
        if not ended:
            ended.append(server().sql(END_CONNECTIONS))
        return 1

    assert await store.database.read(work) == 1
    ended.clear()
    with pytest.raises(StoreError, match="may be stored or not"):
        await store.database.write(work)
    await store.close()


@asynccontextmanager
async def held(store: PostgresStore, statement: str, connections: int = 1) -> AsyncIterator[None]:
    """While transactions are open that have run a statement."""
    begun, ended = threading.Barrier(connections + 1), threading.Event()

    def work(tx: Tx) -> None:
        tx.execute(statement)
        begun.wait(10)
        ended.wait(30)

    running = [asyncio.create_task(store.database.write(work)) for _ in range(connections)]
    await asyncio.to_thread(begun.wait, 10)
    try:
        yield
    finally:
        ended.set()
        await asyncio.gather(*running)


async def test_a_session_that_is_locked_for_too_long_is_said_to_be_locked() -> None:
    address = new_store_address()
    holder, store = await open_postgres(address), await open_postgres(address, busy_seconds=0.2)
    await new_session(store)
    async with held(holder, "SELECT FROM sessions FOR UPDATE"):
        with pytest.raises(StoreBusyError, match="locked by another process for too long; nothing was written"):
            await record(store, says("hi"))
    await record(store, says("hi"))
    assert len(await bodies(store)) == 1
    for each in (holder, store):
        await each.close()


async def test_a_cancelled_caller_leaves_its_connection_to_others_when_its_work_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(postgres_store, "CONNECTIONS", 1)
    async with await open_postgres(new_store_address()) as store:
        await new_session(store)
        recording = asyncio.create_task(record(store, *conversation(20)))
        await asyncio.sleep(0.01)
        recording.cancel()
        await asyncio.gather(recording, return_exceptions=True)
        assert len(await bodies(store)) in (0, 40)


async def test_what_postgresql_cannot_hold_in_a_name_is_refused_with_words() -> None:
    store = await opened()
    for name in ("a\x00b", "\ud800"):
        with pytest.raises(BadInputError, match="cannot be stored"):
            await new_session(store, name)
    session = await new_session(store, "labels", title="a\x00b \ud800")
    assert session.title == "a b ?"
    await store.close()


async def test_a_missing_driver_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    address = new_store_address()
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "contextstash_storage.postgres")
    with pytest.raises(Exception, match=r"pipx install --force '\.\[postgres\]'"):
        await open_store(address)
