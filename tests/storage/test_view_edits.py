"""Edits are appended to the view that was planned on, and the counters follow them."""

from __future__ import annotations

import pytest
from stored_sessions import OWNER, SESSION, conversation, record

from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import Edit, Event, Part
from contextstash_storage.sqlite import SqliteStore


def summary(first: int, last: int, *, delta: int = -4, hidden: int = 1) -> Edit:
    return Edit(
        kind="summary",
        first_seq=first,
        last_seq=last,
        text="Before: …",
        delta={Part.USER: delta, Part.SUMMARIES: 1},
        view_messages=-hidden,
    )


async def test_edits_are_numbered_and_change_the_counters(store: SqliteStore) -> None:
    before = (await record(store, *conversation(4))).session.counters
    session = await store.append_edits(OWNER, SESSION, [summary(0, 1), summary(0, 3)], expected=0)
    after = session.counters
    assert [edit.edit_id for edit in await store.read_edits(OWNER, SESSION)] == [1, 2]
    assert after.edits == 2
    assert after.view_messages == before.view_messages - 2
    assert after.view_tokens == before.view_tokens - 6
    assert (after.parts[Part.SUMMARIES], after.unsent, after.summary_seq) == (2, 6, 3)
    assert await store.get_session(OWNER, SESSION) == session


async def test_undoing_the_newest_summary_brings_back_the_one_before_it(store: SqliteStore) -> None:
    await record(store, *conversation(4))
    await store.append_edits(OWNER, SESSION, [summary(0, 1), summary(0, 5)], expected=0)
    session = await store.append_edits(OWNER, SESSION, [Edit(kind="restore", undoes=(2,))], expected=2)
    assert session.counters.summary_seq == 1
    session = await store.append_edits(OWNER, SESSION, [Edit(kind="restore", undoes=(1,))], expected=3)
    assert session.counters.summary_seq == -1


async def test_edits_planned_on_another_view_are_refused_whole(store: SqliteStore) -> None:
    before = (await record(store, *conversation(4))).session
    event = Event(kind="prune", tokens_before=9, tokens_after=5, reason="full")
    await store.append_edits(OWNER, SESSION, [summary(0, 1)], expected=0, event=event)
    with pytest.raises(EditConflictError, match="plan anew"):
        await store.append_edits(OWNER, SESSION, [summary(0, 3)], expected=0, event=event)
    assert len(await store.read_edits(OWNER, SESSION)) == 1
    assert len(await store.read_events(OWNER, SESSION)) == 1
    assert before.counters.edits == 0


async def test_the_text_of_an_edit_survives_whatever_is_in_it(store: SqliteStore) -> None:
    await record(store, *conversation(1))
    edit = Edit(kind="archive", seq=0, block=0, text="[\ud800 \x00 …]", handle="out_a")
    await store.append_edits(OWNER, SESSION, [edit], expected=0)
    assert [stored.text for stored in await store.read_edits(OWNER, SESSION)] == ["[\ud800 \x00 …]"]


async def test_events_are_read_a_page_at_a_time_and_set_the_level(store: SqliteStore) -> None:
    for tokens in range(5):
        await store.append_event(
            OWNER, SESSION, Event(kind="level", tokens_before=tokens, tokens_after=tokens, reason="grew"), "prune"
        )
    first = await store.read_events(OWNER, SESSION, limit=2)
    rest = await store.read_events(OWNER, SESSION, after=first[-1].event_id)
    assert [event.tokens_before for event in first + rest] == [0, 1, 2, 3, 4]
    assert (await store.get_session(OWNER, SESSION)).counters.level == "prune"
