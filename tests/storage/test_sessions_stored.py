"""Sessions: created once, listed, summed up, changed, and deleted with everything that belongs to them."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from contextstash_storage.errors import BadInputError, HandleNotFoundError, SessionNotFoundError
from contextstash_storage.notes import KEPT_DAYS
from contextstash_storage.records import Call, Cursor, Event, ProxiedSession
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx, only
from tests.support.stored_sessions import SESSION, answers, archiving, new_session, record, says

BIG = "shared output, many times\n" * 200


async def test_a_session_is_created_once(store: SessionStore) -> None:
    first = await new_session(store, "two", title="first", settings={"window": 1000})
    assert await new_session(store, "two", title="second") == first
    assert await store.get_session("two") == first


async def test_sessions_are_listed_by_last_change_a_page_at_a_time(store: SessionStore) -> None:
    for name in ("two", "three", "four"):
        await new_session(store, name)
    await record(store, says("hi"))
    page = await store.list_sessions(limit=3)
    rest = await store.list_sessions(limit=3, before=page[-1].session_id)
    assert [session.session_id for session in page + rest] == [SESSION, "four", "three", "two"]
    assert await store.for_owner("another").list_sessions() == []


async def test_ids_are_completed(store: SessionStore) -> None:
    await new_session(store, "one%more")
    assert sorted(await store.find_session_ids("one", 10)) == ["one", "one%more"]
    assert await store.find_session_ids("one%", 10) == ["one%more"]


async def test_only_the_changeable_fields_of_a_session_can_be_changed(store: SessionStore) -> None:
    changed = await store.update_session(SESSION, title="New", settings={"window": 5})
    assert (changed.title, changed.settings) == ("New", {"window": 5})
    with pytest.raises(BadInputError, match="counters"):
        await store.update_session(SESSION, counters={})


async def fill(store: SessionStore, session_id: str) -> None:
    await record(
        store,
        says("find the needle", key="k"),
        answers("call_0", BIG, handle=f"out_{session_id}"),
        session_id=session_id,
        cursor=Cursor(source=session_id),
    )
    await store.append_edits(session_id, [archiving(1)], expected=0)
    await store.append_log(session_id, Event(kind="prune", tokens_before=2, tokens_after=1, reason="asked"))
    await store.append_log(session_id, Call(purpose="summary", request_seq=1, prompt_tokens=2))


NAMES = ("segments", "keys", "outputs", "log", "entries", "words")


async def table_sizes(store: SessionStore) -> dict[str, int]:
    """The rows of each table, but those that say how a deleted session is recognized."""

    def count(tx: Tx) -> dict[str, int]:
        counts = {name: int(only(tx.rows(f"SELECT count(*) FROM {name}"))) for name in NAMES}
        return counts | {"notes": int(only(tx.rows("SELECT count(*) FROM notes WHERE kind <> 'deleted'")))}

    return await store.database.read(count)


async def test_a_deleted_session_leaves_nothing_behind(store: SessionStore) -> None:
    await new_session(store, "two")
    await fill(store, SESSION)
    alone = await table_sizes(store)
    await fill(store, "two")
    await store.delete_session("two")
    assert await table_sizes(store) == alone
    with pytest.raises(SessionNotFoundError):
        await store.get_session("two")
    with pytest.raises(HandleNotFoundError, match="out_two"):
        await store.find_output("out_two")
    assert await store.get_cursor("two") is None
    assert {hit.session_id for hit in await store.search("needle")} == {SESSION}


async def test_a_deleted_session_is_recognized_by_hashes(store: SessionStore) -> None:
    await store.put_note(SESSION, ProxiedSession(mark="ab", length=2))
    await new_session(store, "two")
    await store.delete_session("two")
    await store.delete_session(SESSION)
    other, deleted = await store.deleted_sessions()
    assert other.is_continued_by("two", [])
    assert not other.is_continued_by(SESSION, ["x", "ab"])
    assert deleted.is_continued_by(SESSION, [])
    assert deleted.is_continued_by("other", ["x", "ab", "cd"])
    assert not deleted.is_continued_by("other", ["ab", "cd"])
    assert not {SESSION, "ab"} & set(deleted.model_dump().values())


async def test_a_deleted_session_is_forgotten_after_its_time_whatever_its_client_does(
    store: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted_at = time.time()
    await store.delete_session(SESSION)
    for days in (KEPT_DAYS - 1, KEPT_DAYS + 1):
        monkeypatch.setattr(time, "time", lambda days=days: deleted_at + days * 86_400)
        known = await store.deleted_sessions()
        assert len(known) == (days < KEPT_DAYS)
        await store.copy_deleted([each.model_copy(update={"mark": f"{days}"}) for each in known])


async def test_the_children_of_a_deleted_session_live_on_without_a_parent(store: SessionStore) -> None:
    await new_session(store, "child", parent_session_id=SESSION)
    assert [child.session_id for child in await store.list_sessions(parent=SESSION)] == ["child"]
    await store.delete_session(SESSION)
    assert (await store.get_session("child")).parent_session_id is None


def at(day: int) -> datetime:
    return datetime(2026, 1, day, tzinfo=UTC)


async def three_sessions(store: SessionStore) -> None:
    """Sessions whose last messages are older the later they were recorded, and an empty one."""
    await record(store, says("new", created_at=at(9)))
    for name, day in (("older", 5), ("oldest", 2)):
        await new_session(store, name)
        await record(store, says("later", created_at=at(1)), says(name, created_at=at(day)), session_id=name)
    await new_session(store, "empty")


async def test_sessions_are_listed_by_the_time_of_their_last_message_a_page_at_a_time(store: SessionStore) -> None:
    await three_sessions(store)
    page = await store.list_sessions(limit=2, by_message=True)
    rest = await store.list_sessions(limit=9, by_message=True, before=page[-1].session_id)
    assert [each.session_id for each in page + rest] == ["empty", SESSION, "older", "oldest"]
    assert [each.last_message_at for each in page + rest] == [None, at(9), at(5), at(2)]
    assert [each.session_id for each in await store.list_sessions()] == ["empty", "oldest", "older", SESSION]


async def test_the_calls_of_an_agent_are_summed_by_day_and_model(store: SessionStore) -> None:
    for day, model, cost in ((1, "x", 0.5), (1, "x", None), (1, "y", None), (2, "x", 1.0)):
        call = Call(purpose="agent", model=model, request_seq=0, prompt_tokens=10, cost=cost, created_at=at(day))
        await store.append_log(SESSION, call)
    await store.append_log(SESSION, Call(purpose="summary", request_seq=0, prompt_tokens=7, created_at=at(3)))
    found = [
        (each.day, each.model, each.calls, each.prompt_tokens, each.priced)
        for each in await store.call_days(session_id=SESSION)
    ]
    assert found == [("2026-01-01", "x", 2, 20, 1), ("2026-01-01", "y", 1, 10, 0), ("2026-01-02", "x", 1, 10, 1)]
    assert await store.call_days() == await store.call_days(session_id=SESSION)
    await new_session(store, "aside", agent="other")
    await store.append_log("aside", Call(purpose="agent", request_seq=0, prompt_tokens=1))
    assert await store.call_days(without_agent="other") == await store.call_days(session_id=SESSION)
