"""A compaction's lease: one compaction of a session at a time, and none keeps the lease after its end."""

from __future__ import annotations

from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from contextstash.reduce.lease import COMPACTION, only_one
from contextstash.stash import Stash
from contextstash_storage.errors import StoreBusyError
from tests.support.gated_store import before
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, stash_at

LONG = [(user, reply)[place % 2](4_000 + place) for place in range(20)]


async def test_a_lease_that_cannot_be_released_does_not_hide_what_was_compacted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy() -> None:
        raise StoreBusyError("locked by another process")

    async with stash_at(tmp_path / "r.db", window=16_000, estimator="chars") as stash:
        await stash.record_messages(LONG, session_id=SESSION)
        before(stash, "release_lease", busy)
        assert (await stash.compact_session(SESSION, strategy="extractive")).compacted
    assert "was not released: locked by another process" in caplog.text


async def test_a_lease_that_one_stash_holds_is_refused_to_another_until_it_is_released(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "o.db") as one, stash_at(tmp_path / "o.db") as two:
        await one.record_messages([user(4)], session_id=SESSION)
        async with only_one(one, SESSION) as first, only_one(two, SESSION) as second:
            assert (first, second) == (True, False)
        async with only_one(two, SESSION) as later:
            assert later
        assert await one.store.acquire_lease(SESSION, COMPACTION, "x", 1)


async def test_a_cancelled_compaction_releases_its_lease(tmp_path: Path) -> None:
    held = anyio.Event()

    async def compact(stash: Stash) -> None:
        async with only_one(stash, SESSION) as is_only_one:
            assert is_only_one
            held.set()
            await anyio.sleep_forever()

    async with stash_at(tmp_path / "c.db") as stash:
        await stash.record_messages([user(4)], session_id=SESSION)
        async with anyio.create_task_group() as group:
            group.start_soon(compact, stash)
            await held.wait()
            group.cancel_scope.cancel()
        assert await stash.store.acquire_lease(SESSION, COMPACTION, "another", 1)


async def test_a_compaction_cancelled_while_it_acquires_its_lease_leaves_none(tmp_path: Path) -> None:
    group = anyio.create_task_group()

    async def compact(stash: Stash) -> None:
        async with only_one(stash, SESSION):
            await anyio.sleep_forever()

    async with stash_at(tmp_path / "a.db") as stash:
        await stash.record_messages([user(4)], session_id=SESSION)
        acquire = stash.store.acquire_lease

        async def acquire_and_cancel(*arguments: object) -> bool:
            acquired = await acquire(*arguments)  # type: ignore[arg-type]
            group.cancel_scope.cancel()
            await anyio.lowlevel.checkpoint()
            return acquired

        stash.store.acquire_lease = acquire_and_cancel  # type: ignore[assignment, method-assign]
        async with group:
            group.start_soon(compact, stash)
        assert await acquire(SESSION, COMPACTION, "another", 1)
