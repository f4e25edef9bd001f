"""A session's edits and events; leases, notes and the tokens of a server's clients."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest

from contextstash.mcp.tokens import create_token, digest, verified
from contextstash.operations import SCOPES
from contextstash_storage.errors import BadInputError, EditConflictError
from contextstash_storage.notes import Token
from contextstash_storage.records import Event, EventKind, KeptState, Part, ProxiedSession, SummaryEdit
from contextstash_storage.store import SessionStore
from tests.storage.conftest import Opener
from tests.support.stored_sessions import SESSION, SqliteStore, conversation, new_session, record, summarizing

NOW = datetime.now(UTC)


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
    found = await store.read_messages(SESSION, at=[7, 0, 3, 99])
    assert found == [every[0], every[3], every[7]]
    assert await store.read_messages(SESSION, at=[]) == []


def summary(first: int, last: int) -> SummaryEdit:
    return summarizing(first, last, text="Before: …")


async def test_edits_are_numbered_and_change_the_counters(store: SessionStore) -> None:
    before = (await record(store, *conversation(4))).session.counters
    parts = {Part.SUMMARIES: 2}
    session = await store.change_session(
        SESSION,
        edits=[summary(0, 1), summary(0, 3)],
        expected=0,
        change=lambda counters: counters.model_copy(update={"parts": parts, "summary_seq": 3}),
    )
    after = session.counters
    assert [edit.edit_id for edit in await store.read_edits(SESSION)] == [1, 2]
    assert (after.edits, after.parts, after.summary_seq) == (2, parts, 3)
    assert after.messages == before.messages
    assert await store.get_session(SESSION) == session


async def test_edits_planned_on_another_view_are_refused_whole(store: SessionStore) -> None:
    before = (await record(store, *conversation(4))).session
    event = Event(kind="prune", tokens_before=9, tokens_after=5, reason="full")
    await store.change_session(SESSION, edits=[summary(0, 1)], expected=0, logged=event)
    with pytest.raises(EditConflictError, match="plan again"):
        await store.change_session(SESSION, edits=[summary(0, 3)], expected=0, logged=event)
    assert len(await store.read_edits(SESSION)) == 1
    assert len(await store.read_log(SESSION, Event)) == 1
    assert before.counters.edits == 0


async def test_a_name_is_given_once_and_a_removed_token_is_gone(store: SessionStore) -> None:
    token = Token(name="laptop", owner="Alice Ω", scopes=("read",), created_at=NOW, expires_at=NOW)
    added = await asyncio.gather(*(store.add_token(token, bytes([number]) * 32) for number in range(9)))
    assert added.count(True) == 1
    assert not await store.add_token(token.model_copy(update={"owner": "mallory"}), b"b" * 32)
    assert await store.for_owner("another").read_tokens() == [token]
    assert await store.remove_token("laptop")
    assert not await store.remove_token("laptop")
    assert [await store.find_token(bytes([number]) * 32) for number in range(9)] == [None] * 9


async def test_a_damaged_note_hides_no_other(store: SessionStore) -> None:
    for name in ("laptop", "phone"):
        await store.add_token(Token(name=name, owner="alice", scopes=("read",), created_at=NOW), name.encode())
        await new_session(store, name)
        await store.put_note(name, ProxiedSession(last_at=5.0, model=name))
    await store.database.write(lambda tx: tx.execute("UPDATE notes SET record = '{' WHERE record LIKE '%phone%'"))
    assert [token.name for token in await store.read_tokens()] == ["laptop"]
    assert [session_id for session_id, _ in await store.recent_proxied(0.0, 9)] == ["laptop"]


async def test_a_secret_is_verified_until_it_expires_and_is_stored_nowhere(store: SessionStore) -> None:
    secret = await create_token(store, "alice", "alice", SCOPES)
    expired = await create_token(store, "old", "alice", SCOPES, NOW - timedelta(seconds=1))
    found = await verified(store, secret)
    assert found is not None
    assert (found.name, found.owner, found.scopes) == ("alice", "alice", SCOPES)
    assert await verified(store, expired) is None
    for wrong in ("", "cst_", secret[:-1], secret + "x", secret.upper(), digest(secret).hex()):
        assert await verified(store, wrong) is None
    assert all(secret not in str(each) for each in await store.read_tokens())


@pytest.mark.parametrize(
    ("name", "owner"),
    [("", "a"), ("a b", "a"), ("a\n", "a"), ("a", ""), ("a", " a"), ("a", "\x1fstaged"), ("a", "a\0")],
)
async def test_names_that_the_store_could_mistake_are_refused(store: SessionStore, name: str, owner: str) -> None:
    with pytest.raises(BadInputError):
        await create_token(store, name, owner, SCOPES)
