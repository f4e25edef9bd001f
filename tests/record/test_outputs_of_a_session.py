"""Outputs archived for a session that are in none of its messages: found, listed and deleted with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.errors import HandleNotFoundError
from tests.support.sized_sessions import user
from tests.support.stashes import SESSION, stash_at, whole_output

TEXT = "\n".join(f"{number}: compiling module {number}" for number in range(3_000)) + "\nfatal: no room on the disk"


async def test_they_are_found_in_their_session_and_everywhere(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "f.db") as stash:
        await stash.record_messages([user(40)], session_id=SESSION)
        kept = await stash.limit_output(TEXT, tool="bash", argument="make", session_id=SESSION, limits={"tokens": 500})
        assert kept.handle
        assert await whole_output(stash, kept.handle) == TEXT
        for scope in ("session", "outputs", "everywhere"):
            hits = (await stash.search_history("disk fatal", session_id=SESSION, scope=scope)).hits
            assert [hit.handle for hit in hits][:1] == [kept.handle]
        assert (await stash.search_history("disk fatal", session_id=SESSION, scope="messages")).hits == []


async def test_their_session_is_not_listed_and_is_deleted_with_its_parent(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "d.db") as stash:
        await stash.record_messages([user(40)], session_id=SESSION)
        kept = await stash.limit_output(TEXT, session_id=SESSION, limits={"tokens": 500})
        assert [line.session_id for line in (await stash.list_sessions()).sessions] == [SESSION]
        await stash.delete_session(SESSION)
        with pytest.raises(HandleNotFoundError):
            await stash.get_archived_output(kept.handle or "")
