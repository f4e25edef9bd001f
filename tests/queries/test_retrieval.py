"""Search within a session: what the view does not show comes first."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.errors import BadInputError
from tests.support.sized_sessions import round_of, user
from tests.support.stashes import SESSION, stash_at


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


async def test_a_time_beyond_the_calendar_is_refused_by_name(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "u.db") as stash:
        with pytest.raises(BadInputError, match="until"):
            await stash.search_history("quinces", until="9999-12-31")
        with pytest.raises(BadInputError, match="since"):
            await stash.search_history("quinces", since="0001-01-01T00:00:00+12:00")
