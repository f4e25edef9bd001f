"""Edits are appended only to the view they were planned for, and update the counters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contextstash_storage.errors import EditConflictError
from contextstash_storage.records import ArchiveEdit, Edit, Event, Part, SummaryEdit
from contextstash_storage.sqlite import SqliteStore, open_sqlite
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import SESSION, archiving, conversation, record, summarizing


def summary(first: int, last: int) -> SummaryEdit:
    return summarizing(first, last, text="Before: …")


async def test_edits_are_numbered_and_change_the_counters(store: SessionStore) -> None:
    before = (await record(store, *conversation(4))).session.counters
    parts = {Part.SUMMARIES: 2}
    session = await store.append_edits(
        SESSION,
        [summary(0, 1), summary(0, 3)],
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
    await store.append_edits(SESSION, [summary(0, 1)], expected=0, event=event)
    with pytest.raises(EditConflictError, match="plan again"):
        await store.append_edits(SESSION, [summary(0, 3)], expected=0, event=event)
    assert len(await store.read_edits(SESSION)) == 1
    assert len(await store.read_log(SESSION, Event)) == 1
    assert before.counters.edits == 0


def archives(count: int, text: str = "[archived]") -> list[Edit]:
    return [archiving(place, text=f"{text} {place}") for place in range(count)]


def texts(edits: list[Edit]) -> list[str]:
    return [edit.text for edit in edits if isinstance(edit, ArchiveEdit)]


async def test_of_two_that_store_many_edits_at_once_one_is_refused_whole(store: SqliteStore, path: Path) -> None:
    await record(store, *conversation(4))
    async with await open_sqlite(path) as other:
        answers = await asyncio.gather(
            store.append_edits(SESSION, archives(95, "ours"), expected=0),
            other.append_edits(SESSION, archives(95, "theirs"), expected=0),
            return_exceptions=True,
        )
        assert [isinstance(answer, EditConflictError) for answer in answers].count(True) == 1
        edits = await store.read_edits(SESSION)
        assert [edit.edit_id for edit in edits] == list(range(1, 96))
        assert len({text.split()[0] for text in texts(edits)}) == 1
