"""What only the store in PostgreSQL has: its tables, locks and errors."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from contextstash_storage.databases import open_store
from contextstash_storage.errors import BadInputError, StoreBusyError, StoreVersionError
from contextstash_storage.postgres import connection
from contextstash_storage.postgres.full_text_search import search
from contextstash_storage.postgres.store import PostgresStore, open_postgres
from contextstash_storage.search.query_terms import SearchFilter
from tests.support.postgres_server import new_store_address, server
from tests.support.stored_sessions import SESSION, answers, bodies, calls, conversation, new_session, record, says

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
    await store._database.write(lambda db: db.execute("UPDATE contextstash_version SET version = 99"))
    with pytest.raises(StoreVersionError, match="version 99"):
        await open_postgres(store._database.address)
    await store.close()


HOLDER = """
import asyncio, sys
from contextstash_storage.databases import location_of, open_store
async def main():
    store = await open_store(location_of(sys.argv[1]))
    assert await store.acquire_lease("one", "compaction", "other process", 3600.0)
    print("taken", flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""


async def test_the_lease_of_a_killed_process_is_free_at_once() -> None:
    store = await opened()
    await new_session(store)
    command = [sys.executable, "-c", HOLDER, store._database.address.given]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"taken\n"
    assert not await store.acquire_lease(SESSION, "compaction", "mine", 60.0)
    process.kill()
    await process.wait()
    async with asyncio.timeout(10):
        while not await store.acquire_lease(SESSION, "compaction", "mine", 60.0):  # noqa: ASYNC110 - the server notices
            await asyncio.sleep(0.01)
    await store.close()


async def test_work_goes_on_when_the_server_has_ended_all_connections() -> None:
    store = await opened()
    await new_session(store)
    await record(store, *conversation(2), first_seq=0)
    server().sql(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'contextstash'"
    )
    await record(store, *conversation(3), first_seq=0)
    assert await bodies(store) == [message.body for message in conversation(3)]
    assert await store.acquire_lease(SESSION, "compaction", "mine", 60.0)
    await store.close()


async def test_a_session_that_is_locked_for_too_long_is_said_to_be_locked() -> None:
    address = new_store_address()
    holder, store = await open_postgres(address), await open_postgres(address, busy_seconds=0.2)
    await new_session(store)

    async def while_locked(db: Any) -> None:
        await db.execute("SELECT FROM sessions FOR UPDATE")
        with pytest.raises(StoreBusyError, match="locked by another process for too long; nothing was written"):
            await record(store, says("hi"))

    await holder._database.write(while_locked)
    await record(store, says("hi"))
    assert len(await bodies(store)) == 1
    for each in (holder, store):
        await each.close()


async def test_a_pool_whose_connections_are_all_in_use_is_said_to_be_too_small() -> None:
    store = await open_postgres(replace(new_store_address(), pool_size=2), busy_seconds=0.2)
    await new_session(store)

    async def while_used(_: Any) -> None:
        with pytest.raises(StoreBusyError, match=r"All 2 connections .* were in use for 0\.2 s; .* larger pool_size"):
            await record(store, says("hi"))

    async def while_one_is_used(_: Any) -> None:
        await store._database.read(while_used)

    await store._database.read(while_one_is_used)
    await record(store, says("hi"))
    assert len(await bodies(store)) == 1
    await store.close()


async def test_a_statement_that_takes_too_long_is_said_to_be_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "COMMAND_SECONDS", 0.2)
    store = await opened()
    with pytest.raises(StoreBusyError, match=r"did not finish a statement within 0\.2 s"):
        await store._database.write(lambda db: db.execute("SELECT pg_sleep(30)"))
    await new_session(store)
    await store.close()


async def test_recordings_of_many_sessions_and_processes_are_all_stored_once() -> None:
    address = new_store_address()
    stores = [await open_postgres(address) for _ in range(2)]
    names = [f"s{number}" for number in range(8)]
    for name in names:
        await new_session(stores[0], name)

    async def fill(store: PostgresStore, name: str) -> None:
        for number in range(5):
            await record(store, says(f"message {number}"), session_id=name, batch_id=f"{id(store)} {number}")

    await asyncio.gather(*(fill(store, name) for name in names for store in stores))
    for name in names:
        messages = await stores[0].read_messages(name)
        assert [message.seq for message in messages] == list(range(10))
    for store in stores:
        await store.close()


async def test_a_part_of_a_path_finds_the_output_of_its_call() -> None:
    store = await opened()
    await new_session(store)
    output = answers("call_0", "def main(): ...").outputs[0].model_copy(update={"argument": "src/schema_migrations.py"})
    await record(store, answers("call_0", "def main(): ...").model_copy(update={"outputs": (output,)}), says("else"))
    [hit] = await store.search("hema_migr")
    assert (hit.seq, hit.handles) == (0, ("out_a",))
    assert await store.search("hema%migr") == await store.search("zz") == []
    assert await store.search("hema_migr", SearchFilter(scope="messages")) == []
    await store.close()


@pytest.mark.parametrize("where", [SearchFilter(), SearchFilter(after=datetime(2020, 1, 1, tzinfo=UTC))])
async def test_without_statistics_each_row_that_a_search_needs_is_looked_up_by_its_key(where: SearchFilter) -> None:
    store = await opened()
    await new_session(store)
    pairs = [(calls(f"call_{n}", f"open file{n}"), answers(f"call_{n}", f"line{n}", f"out_{n}")) for n in range(200)]
    await record(store, *(message for pair in pairs for message in pair))
    planned: dict[str, list[dict[str, Any]]] = {}

    class Explained:
        """A connection that plans what it is asked."""

        def __init__(self, db: Any) -> None:
            self.execute, self._db = db.execute, db

        async def fetch(self, sql: str, *values: object) -> Any:
            [[plan]] = await self._db.fetch(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}", *values)
            planned[sql] = list(nodes(json.loads(plan)[0]["Plan"]))
            return await self._db.fetch(sql, *values)

    def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
        yield plan
        for each in plan.get("Plans", ()):
            yield from nodes(each)

    await store._database.read(lambda db: search(Explained(db), store.owner, "open line7", where, 5))  # type: ignore[arg-type]
    read = [node for plan in planned.values() for node in plan if "Relation Name" in node]
    assert {node["Relation Name"] for node in read} > {"search_entries", "outputs", "messages"}
    for node in read:
        rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
        assert "vector" in str(node) or rows <= 2, node
    await store.close()


async def test_what_postgresql_cannot_hold_in_a_name_is_refused_with_words() -> None:
    store = await opened()
    for name in ("a\x00b", "\ud800"):
        with pytest.raises(BadInputError, match="cannot be stored"):
            await new_session(store, name)
    session = await new_session(store, "labels", title="a\x00b \ud800")
    assert session.title == "a b ?"
    await store.close()


async def test_a_missing_driver_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    address = new_store_address()
    monkeypatch.setitem(sys.modules, "asyncpg", None)
    for name in [name for name in sys.modules if name.startswith("contextstash_storage.postgres.")]:
        if name != "contextstash_storage.postgres.address":
            monkeypatch.delitem(sys.modules, name)
    with pytest.raises(Exception, match=r"pip install --editable '\.\[postgres\]'"):
        await open_store(address)
