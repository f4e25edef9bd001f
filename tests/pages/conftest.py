"""A database with a session that has everything that the pages show, and the pages of it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.pages import Served, messages, pages_of
from tests.support.stashes import stash_at


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with that session, pruned and compacted; tests must not change it."""
    path = tmp_path_factory.mktemp("ui") / "sessions.db"

    async def fill() -> None:
        async with stash_at(path, window=400_000, compact_keep_tokens=4_000) as stash:
            await stash.record_messages(messages(), whole=True, session_id="build")
            assert (await stash.prune_tool_outputs("build", keep_last=4)).archived
            assert (await stash.compact_session("build", strategy="extractive")).compacted

    asyncio.run(fill())
    return path


@pytest.fixture(scope="module")
def served(database: Path) -> Iterator[Served]:
    with pages_of(database) as found:
        yield found
