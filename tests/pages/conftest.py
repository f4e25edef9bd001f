"""A database with a session that has everything that the pages show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.pages import messages
from tests.support.stashes import stash_at


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with that session, pruned and compacted; tests must not change it."""
    path = tmp_path_factory.mktemp("ui") / "sessions.db"
    asyncio.run(fill(path))
    return path


async def fill(path: Path) -> None:
    """Record the session, prune and compact it."""
    natives = messages()
    async with stash_at(path, window=400_000, compact_keep_tokens=4_000) as stash:
        await stash.record_messages(natives, whole=True, session_id="build")
        assert (await stash.prune_tool_outputs("build", keep_last=4)).archived
        assert (await stash.compact_session("build", strategy="extractive")).compacted
