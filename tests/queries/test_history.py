"""Search within a session, and the conversation that a program goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.errors import SessionNotFoundError
from tests.support.stashes import SESSION, reply, round_of, stash_at, user


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
