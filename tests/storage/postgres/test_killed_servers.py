"""Two servers on one PostgreSQL, each killed again and again while it records: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path

import pytest

from contextstash_storage.postgres import open_postgres
from contextstash_storage.records import NewMessage
from tests.support.effort import examples
from tests.support.postgres_server import new_store_address
from tests.support.stored_sessions import SESSION, new_session, says

pytestmark = pytest.mark.postgres

SERVERS = ("north", "south")
KILLS = examples(12)
BATCH = 5

SERVER = """
import asyncio, itertools, sys
from contextstash_storage.transaction import parse_address
from contextstash_storage.postgres import open_postgres
from tests.storage.postgres.test_killed_servers import batch
from tests.support.stored_sessions import SESSION, record
async def main(address, server, first):
    store = await open_postgres(parse_address(address))
    for number in itertools.count(int(first)):
        await record(store, *batch(server, number), session_id=SESSION, batch_id=f"{server} {number}")
        print(number, flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


def batch(server: str, number: int) -> list[NewMessage]:
    return [says(f"{server} batch{number} part{part}") for part in range(BATCH)]


async def started(address: str, server: str, first: int) -> Process:
    where = [str(Path(__file__).parents[3]), *sys.path]
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
