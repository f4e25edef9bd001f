"""Lists by last message, and sums over sessions by day and model."""

from __future__ import annotations

from datetime import UTC, datetime

from contextstash_storage.records import Call
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import SESSION, new_session, record, says


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
        for each in await store.session_days(SESSION)
    ]
    assert found == [("2026-01-01", "x", 2, 20, 1), ("2026-01-01", "y", 1, 10, 0), ("2026-01-02", "x", 1, 10, 1)]
    assert await store.owner_days() == await store.session_days(SESSION)
    await new_session(store, "aside", agent="other")
    await store.append_log("aside", Call(purpose="agent", request_seq=0, prompt_tokens=1))
    assert await store.owner_days(without_agent="other") == await store.session_days(SESSION)
