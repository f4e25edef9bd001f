"""What every store does with sessions that are taken out of the search index, and with their return."""

from __future__ import annotations

import asyncio

from contextstash_storage.records import NewMessage
from contextstash_storage.search.query_terms import SearchFilter
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import SESSION, answers, bodies, calls, new_session, record, says

LARGE = "\n".join(f"line {number} of a large output" for number in range(600))
SAID = [
    says("ask about planets"),
    calls("call_1", "cat planets.txt"),
    answers("call_1", LARGE),
    says("they are \ud83d"),
]


async def found(store: SessionStore, query: str) -> list[tuple[str, int, str]]:
    """The hits of a query, with the texts around them."""
    return sorted((hit.session_id, hit.seq, hit.text) for hit in await store.search(query, limit=20))


async def fill(store: SessionStore, messages: list[NewMessage] = SAID) -> None:
    await new_session(store, "other")
    await record(store, says("planets of another session"), session_id="other")
    await record(store, *messages)


async def test_a_session_is_not_found_until_it_is_indexed_again_and_read_all_the_same(store: SessionStore) -> None:
    await fill(store)
    whole = {query: await found(store, query) for query in ("planets", "large output", "cat", "planets large")}
    assert await store.unindex_sessions([SESSION, "none"]) == 1
    assert await store.unindex_sessions([SESSION]) == 0
    assert await store.unindexed_sessions() == [SESSION]
    assert [name for name, *_ in await found(store, "planets")] == ["other"]
    assert await bodies(store) == [message.body for message in SAID]
    assert await store.index_session(SESSION)
    assert not await store.index_session(SESSION)
    assert await store.unindexed_sessions() == []
    assert {query: await found(store, query) for query in whole} == whole
    assert len(await store.search("large", SearchFilter(tool="Bash"))) == 1


async def test_a_message_that_is_appended_brings_all_of_the_session_back(store: SessionStore) -> None:
    await fill(store)
    await store.unindex_sessions([SESSION])
    await record(store, answers("call_1", "a second part of the planets", "out_c"))
    for _ in range(1_000):
        if not await store.unindexed_messages():
            break
        await asyncio.sleep(0.01)
    assert {seq for name, seq, _ in await found(store, "planets") if name == SESSION} >= {0, 1, 4}
    assert await store.unindexed_sessions() == []


async def test_it_is_deleted_and_made_again(store: SessionStore) -> None:
    await fill(store)
    await store.unindex_sessions([SESSION])
    await store.delete_session(SESSION)
    assert await store.unindexed_sessions() == []
    await new_session(store)
    await record(store, says("planets, made again"))
    assert [name for name, *_ in await found(store, "planets")] == sorted(["other", SESSION])
