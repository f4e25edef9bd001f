"""A stash for the tests that need no settings of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from contextstash.stash import Stash
from tests.support.stashes import stash_at


@pytest.fixture
async def stash(tmp_path: Path) -> AsyncIterator[Stash]:
    async with stash_at(tmp_path / "s.db", window=100_000) as opened:
        yield opened
