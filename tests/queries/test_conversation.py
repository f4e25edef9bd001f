"""The conversation that a program goes on with: one branch, whole, also below a summary."""

from __future__ import annotations

from pathlib import Path

import pytest

from contextstash_storage.errors import SessionNotFoundError
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, stash_at


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
