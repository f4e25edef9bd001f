"""A session store in a file of its own, and one session in it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contextstash_storage.sqlite import SqliteStore, open_sqlite
from tests.support.stored_sessions import new_session


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "stash.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    opened = await open_sqlite(path)
    await new_session(opened)
    yield opened
    await opened.close()
