"""Search within a session, pages of outputs by a pattern, and the conversation that a program goes on with."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from contextstash.outputs import paging
from contextstash.queries import history
from contextstash.session.access import PATTERN_THREADS
from contextstash.stash import Stash
from contextstash_storage.errors import BadInputError, SessionNotFoundError
from tests.support.stashes import SESSION, all_handles, reply, round_of, rounds, stash_at, user


async def test_an_agent_finds_what_its_view_does_not_show_first(tmp_path: Path) -> None:
    natives = [user(40)]
    for number, kind in enumerate(["pears"] * 4 + ["figs"]):
        natives += round_of(number, f"{kind} and quinces, batch {number}\n" * 200)
    natives += round_of(5, "quinces quinces quinces\n" * 5)
    async with stash_at(tmp_path / "u.db", automatic=False) as stash:
        await stash.record_messages(natives, session_id=SESSION)
        shown = (await stash.search_history("quinces", session_id=SESSION, limit=2)).hits
        pruned = await stash.prune_tool_outputs(SESSION, keep_last=2)
        unseen = (await stash.search_history("quinces", session_id=SESSION, limit=2)).hits
        by_words = (await stash.search_history("quinces", session_id=SESSION, limit=2, unseen_first=False)).hits
        best = (await stash.search_history("figs", session_id=SESSION, limit=2)).hits
    archived = {output.handle for output in pruned.archived}
    assert {hit.handle for hit in unseen} <= archived
    assert not {shown[0].handle} & archived
    assert [hit.handle for hit in by_words] == [hit.handle for hit in shown]
    assert best[0].handle not in archived, "a hit that the view shows is found if nothing else has the word"


async def test_a_time_beyond_the_calendar_is_refused_by_name(stash: Stash) -> None:
    with pytest.raises(BadInputError, match="since"):
        await stash.search_history("quinces", since="0001-01-01T00:00:00+12:00")


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Semaphore, threading.Event]:
    """Makes each search for a pattern last until the event is set; the semaphore counts those that have begun."""
    begun, end, make = threading.Semaphore(0), threading.Event(), paging.page

    def last(*arguments: Any, **options: Any) -> paging.Page:
        if options["pattern"]:
            begun.release()
            assert end.wait(60)
        return make(*arguments, **options)

    monkeypatch.setattr(history, "page", last)
    return begun, end


async def test_slow_patterns_delay_only_other_patterns(
    stash: Stash, slow: tuple[threading.Semaphore, threading.Event]
) -> None:
    begun, end = slow
    await stash.record_messages([user(4), *rounds([400])], session_id=SESSION)
    [handle] = await all_handles(stash)
    by_pattern = [
        asyncio.create_task(stash.get_archived_output(handle, session_id=SESSION, pattern="0000"))
        for _ in range(PATTERN_THREADS + 3)
    ]
    for _ in range(PATTERN_THREADS):
        await asyncio.to_thread(begun.acquire)
    assert len((await stash.get_archived_output(handle, session_id=SESSION)).text) == 400
    assert not any(task.done() for task in by_pattern)
    end.set()
    assert {found.note for found in await asyncio.gather(*by_pattern)} == {"1 of 1 matching lines."}


async def test_it_is_the_branch_that_is_continued(tmp_path: Path) -> None:
    talk = [message for turn in range(6) for message in (user(4_000 + turn), reply(4_000 + turn))]
    async with stash_at(tmp_path / "c.db", window=20_000) as stash:
        await stash.record_messages(talk, session_id=SESSION, whole=True)
        other = [*talk[:9], reply(7)]
        await stash.record_messages(other, session_id=SESSION, whole=True)
        assert await stash.read_conversation(SESSION) == other
        assert (await stash.compact_session(SESSION)).compacted
        assert await stash.read_conversation(SESSION) == other
        await stash.record_messages(talk[:2], session_id=SESSION, whole=True)
        assert await stash.read_conversation(SESSION) == talk[:2]
        with pytest.raises(SessionNotFoundError):
            await stash.read_conversation("no-such")
