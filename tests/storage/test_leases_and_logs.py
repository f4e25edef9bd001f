"""Leases, a session's log of events and calls, and cached summaries."""

from __future__ import annotations

import asyncio
import time

import pytest

from contextstash_storage.records import Event, EventKind, KeptState
from contextstash_storage.sqlite import SqliteStore
from contextstash_storage.store import SessionStore
from tests.storage.conftest import Opener
from tests.support.stored_sessions import SESSION, conversation, new_session, record


async def acquire(store: SessionStore, holder: str, seconds: float = 60.0) -> bool:
    return await store.acquire_lease(SESSION, "compaction", holder, seconds)


async def test_one_of_many_gets_a_lease_and_the_next_once_it_is_given_back(open_store: Opener) -> None:
    one, two = await open_store(), await open_store()
    await new_session(one)
    taken = await asyncio.gather(*(acquire((one, two)[number % 2], f"h{number}") for number in range(8)))
    assert sum(taken) == 1
    winner = f"h{taken.index(True)}"
    await two.release_lease(SESSION, "compaction", "somebody else")
    assert not await acquire(two, "late")
    assert await acquire(two, winner)
    await one.release_lease(SESSION, "compaction", winner)
    assert await acquire(two, "late")


async def test_an_expired_lease_is_taken_over_and_another_purpose_is_free(store: SessionStore) -> None:
    assert await acquire(store, "dead", seconds=-1.0)
    assert await acquire(store, "alive")
    assert not await acquire(store, "dead")
    assert await store.acquire_lease(SESSION, "import", "dead", 60.0)


async def test_no_lease_outlives_its_duration_when_the_time_of_day_jumps(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 86_400)
    assert await acquire(store, "dated tomorrow")
    monkeypatch.setattr(time, "time", lambda: now)
    assert not await acquire(store, "early")
    await store.database.write(lambda tx: tx.execute("UPDATE notes SET begins = begins - 60, ends = ends - 60"))
    assert await acquire(store, "in time")


async def test_the_newest_events_of_some_kinds_come_newest_first(store: SessionStore) -> None:
    await new_session(store)
    kinds: tuple[EventKind, ...] = ("prune", "handoff", "compaction", "handoff", "prune")
    for number, kind in enumerate(kinds):
        event = Event(kind=kind, tokens_before=number, tokens_after=0, reason="r", seq=number, parts={"user": 3})
        await store.append_log(SESSION, event)
    found = await store.read_log(SESSION, Event, keys=("prune", "compaction"), newest=True, limit=2)
    assert [(event.kind, event.seq, event.parts) for event in found] == [
        ("prune", 4, {"user": 3}),
        ("compaction", 2, {"user": 3}),
    ]
    assert [event.seq for event in await store.read_log(SESSION, Event)] == [0, 1, 2, 3, 4]


async def test_a_note_is_replaced_and_goes_with_its_session(store: SessionStore) -> None:
    await new_session(store)
    assert await store.get_note(SESSION, KeptState) is None
    for text in ("All is done.", "Newer."):
        await store.put_note(SESSION, KeptState(text=text))
        assert await store.get_note(SESSION, KeptState) == KeptState(text=text)
    await store.delete_session(SESSION)
    await new_session(store)
    assert await store.get_note(SESSION, KeptState) is None


async def test_messages_at_some_positions_come_in_order_with_their_bodies(store: SessionStore) -> None:
    await new_session(store)
    await record(store, *conversation(6))
    every = await store.read_messages(SESSION)
    found = await store.read_messages_at(SESSION, [7, 0, 3, 99])
    assert found == [every[0], every[3], every[7]]
    assert await store.read_messages_at(SESSION, []) == []
