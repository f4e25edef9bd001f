"""What only the store in PostgreSQL has: locks, errors, killed servers, what a deletion leaves in files."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from contextstash_storage.databases import open_store
from contextstash_storage.errors import BadInputError, StoreBusyError, StoreError
from contextstash_storage.postgres import PostgresDatabase, open_postgres
from contextstash_storage.records import NewMessage
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Address, Tx
from tests.storage.test_sessions import SECRET, fill_secret, others
from tests.support.effort import examples
from tests.support.postgres_server import database_name, new_store_address, server
from tests.support.stored_sessions import SESSION, bodies, conversation, new_session, record, says

pytestmark = pytest.mark.postgres


class PostgresStore(SessionStore):
    """A store that is known to be on a server."""

    database: PostgresDatabase


@pytest.fixture
async def store() -> AsyncIterator[SessionStore]:
    async with await open_postgres(new_store_address()) as opened:
        yield opened


async def test_several_processes_may_open_a_new_database_at_once() -> None:
    address = new_store_address()
    server().sql("DROP SCHEMA public CASCADE; CREATE SCHEMA public", address.shown.rpartition("/")[2])
    stores = await asyncio.gather(*(open_postgres(address) for _ in range(4)))
    await new_session(stores[0])
    assert [session.session_id for session in await stores[3].list_sessions()] == [SESSION]
    for store in stores:
        await store.close()


async def test_a_database_of_a_newer_contextstash_is_refused(store: PostgresStore) -> None:
    await store.database.write(lambda tx: tx.execute("UPDATE contextstash_version SET version = 99"))
    with pytest.raises(StoreError, match="version 99"):
        await open_postgres(store.database.address)


async def test_work_goes_on_when_the_server_has_ended_all_connections(store: PostgresStore) -> None:
    await new_session(store)
    await record(store, *conversation(2), known_by=0)
    server().sql(END_CONNECTIONS)
    await record(store, *conversation(3), known_by=0)
    assert await bodies(store) == [message.body for message in conversation(3)]
    assert await store.acquire_lease(SESSION, "compaction", "mine", 60.0)


END_CONNECTIONS = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'contextstash'"
)


async def test_a_connection_that_ends_before_a_commit_is_said_of_writes_alone(store: PostgresStore) -> None:
    ended: list[str] = []

    def work(_: Tx) -> int:
        if not ended:
            ended.append(server().sql(END_CONNECTIONS))
        return 1

    assert await store.database.read(work) == 1
    ended.clear()
    with pytest.raises(StoreError, match="may be stored or not"):
        await store.database.write(work)


@asynccontextmanager
async def held(store: PostgresStore, statement: str) -> AsyncIterator[None]:
    """While a transaction is open that has run a statement."""
    begun, ended = threading.Barrier(2), threading.Event()

    def work(tx: Tx) -> None:
        tx.execute(statement)
        begun.wait(10)
        ended.wait(30)

    running = asyncio.create_task(store.database.write(work))
    await asyncio.to_thread(begun.wait, 10)
    try:
        yield
    finally:
        ended.set()
        await running


async def test_a_session_that_is_locked_for_too_long_is_said_to_be_locked(store: PostgresStore) -> None:
    await new_session(store)
    async with await open_postgres(store.database.address, busy_seconds=0.2) as second:
        async with held(store, "SELECT FROM sessions FOR UPDATE"):
            with pytest.raises(StoreBusyError, match="locked by another process for too long; nothing was written"):
                await record(second, says("hi"))
        await record(second, says("hi"))
        assert len(await bodies(second)) == 1


async def test_what_postgresql_cannot_hold_in_a_name_is_refused_with_words(store: PostgresStore) -> None:
    for name in ("a\x00b", "\ud800"):
        with pytest.raises(BadInputError, match="cannot be stored"):
            await new_session(store, name)
    session = await new_session(store, "labels", title="a\x00b \ud800")
    assert session.title == "a b ?"


async def test_a_missing_driver_is_named_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    address = new_store_address()
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "contextstash_storage.postgres")
    with pytest.raises(Exception, match=r"pipx install --force '\.\[postgres\]'"):
        await open_store(address)


SERVERS = ("north", "south")
KILLS = examples(12)
BATCH = 5

SERVER = """
import asyncio, itertools, sys
from contextstash_storage.transaction import parse_address
from contextstash_storage.postgres import open_postgres
from tests.storage.test_postgres import batch
from tests.support.stored_sessions import SESSION, record
async def main(address, server, first):
    store = await open_postgres(parse_address(address))
    for number in itertools.count(int(first)):
        await record(store, *batch(server, number), session_id=SESSION, known_by=f"{server} {number}")
        print(number, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


def batch(server: str, number: int) -> list[NewMessage]:
    return [says(f"{server} batch{number} part{part}") for part in range(BATCH)]


async def started(address: str, server: str, first: int) -> Process:
    where = [str(Path(__file__).parents[2]), *sys.path]
    code = f"import sys; sys.path[:0] = {where!r}\n{SERVER}"
    return await asyncio.create_subprocess_exec(sys.executable, "-c", code, address, server, str(first), stdout=PIPE)


async def killed(address: str, server: str, rng: random.Random) -> int:
    """Kill the server's processes, each after some of its batches were acknowledged, and start the next one, which
    sends again what had no answer. Returns how many batches were acknowledged."""
    acknowledged = 0
    for _ in range(KILLS):
        process = await started(address, server, acknowledged)
        assert process.stdout is not None
        for _ in range(rng.randint(1, 6)):
            assert int(await process.stdout.readline()) == acknowledged
            acknowledged += 1
        await asyncio.sleep(rng.uniform(0, 0.005))
        process.kill()
        # What it said before it died is acknowledged too.
        acknowledged += len((await process.stdout.read()).split())
        await process.wait()
    return acknowledged


async def test_nothing_acknowledged_is_lost_or_stored_twice() -> None:
    address = new_store_address()
    async with await open_postgres(address) as store:
        await new_session(store)
        counts = await asyncio.gather(*(killed(address.url, server, random.Random(server)) for server in SERVERS))
        messages = await store.read_messages(SESSION)
        texts = [str((message.body or {})["content"]) for message in messages]
        whole = [[text.split()[:2] for text in texts[first : first + BATCH]] for first in range(0, len(texts), BATCH)]
        assert all(len({tuple(place) for place in group}) == 1 for group in whole)  # no batch parts another one
        stored = Counter(" ".join(group[0]) for group in whole)
        assert set(stored.values()) == {1}
        for server, count in zip(SERVERS, counts, strict=True):
            own = sum(name.startswith(server) for name in stored)
            assert all(stored[f"{server} batch{number}"] for number in range(count))
            assert own - count in (0, 1)  # the last one may have been stored without an answer
            assert await store.search(f"{server} batch{count - 1} part{BATCH - 1}", limit=1)


def table_files(address: Address) -> Iterator[bytes]:
    """The files of a database's tables and indexes, as they are on the disk."""
    server().sql("CHECKPOINT")
    number = server().sql(f"SELECT oid FROM pg_database WHERE datname = '{database_name(address)}'")
    for path in sorted(Path(server().folder / "data" / "base" / number).iterdir()):
        if path.is_file():
            yield path.read_bytes()


async def test_after_a_vacuum_no_table_or_index_holds_a_trace_of_a_deleted_session(store: PostgresStore) -> None:
    await others(store)
    await fill_secret(store, "secret")
    address, text = (
        store.database.address,
        "SELECT substr(contents, 200, 40) FROM segments JOIN sessions USING (session)",
    )
    [(packed,)] = await store.database.read(lambda tx: tx.rows(f"{text} WHERE session_id = 'secret' LIMIT 1"))

    def traces() -> list[bytes]:
        """The secret, and the inner part of a large text in which it is packed, if a file holds them."""
        found = b"".join(table_files(address))
        return [trace for trace in (SECRET.encode(), packed) if trace in found]

    assert len(traces()) == 2
    assert await store.delete_session("secret")
    assert not await store.search(SECRET)
    server().sql("VACUUM FULL", database_name(address))
    assert traces() == []
    assert [len(await bodies(store, f"kept {number}")) for number in range(4)] == [60] * 4
