"""Messages kept in memory are those of the store, whatever happens to the session meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

from contextstash.service.session_cache import MAX_SESSIONS
from tests.support.stashes import SESSION, stash_at, view


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def test_another_process_appends_and_rewinds(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db") as one, stash_at(tmp_path / "c.db") as other:
        await one.record_messages([said("a"), said("b")], session_id=SESSION, whole=True)
        assert await view(one) == [said("a"), said("b")]
        await other.record_messages([said("a"), said("c"), said("d")], session_id=SESSION, whole=True)
        assert await view(one) == [said("a"), said("c"), said("d")]


async def test_a_session_that_was_deleted_and_made_again_is_another_one(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db") as one, stash_at(tmp_path / "c.db") as other:
        await one.record_messages([said("a")], session_id=SESSION)
        assert await view(one) == [said("a")]
        await other.delete_session(SESSION)
        await other.record_messages([said("z")], session_id=SESSION)
        assert await view(one) == [said("z")]


async def test_an_older_copy_of_a_session_takes_its_place(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "c.db") as one, stash_at(tmp_path / "c.db") as other:
        await one.record_messages([said("a")], session_id=SESSION)
        copy = [record async for record in one.export_session(SESSION)]
        await one.record_messages([said("b")], session_id=SESSION)
        assert await view(one) == [said("a"), said("b")]
        await other.delete_session(SESSION)
        await other.import_session([json.dumps(record) for record in copy])
        assert await view(one) == [said("a")]
        await other.record_messages([said("c")], session_id=SESSION)
        assert await view(one) == [said("a"), said("c")]


async def test_many_sessions_at_once(tmp_path: Path) -> None:
    names = [f"{SESSION}-{number}" for number in range(2 * MAX_SESSIONS)]
    async with stash_at(tmp_path / "c.db") as stash:
        for name in names:
            await stash.record_messages([said(name)], session_id=name)
        for name in [*names, *names]:
            assert await view(stash, name) == [said(name)]
        assert len(stash._access._known) == MAX_SESSIONS
