"""A compaction's lease while the database is busy, and when it is lost: two compactions never both apply a summary."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash.reduce import lease as leases
from contextstash.reduce.lease import COMPACTION, only_one
from contextstash.stash import Stash
from contextstash_storage.errors import StoreBusyError
from contextstash_storage.sqlite.store import open_sqlite
from tests.support.gated_store import before
from tests.support.model_provider import Answer, model_provider
from tests.support.sized_sessions import reply, user
from tests.support.stashes import SESSION, as_bytes, stash_at, view

LONG = [(user, reply)[place % 2](4_000 + place) for place in range(20)]
KEY = "sk-ant-test"


async def test_a_busy_database_does_not_end_the_renewal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(leases, "RETRY_SECONDS", 0.05)
    path = tmp_path / "b.db"
    stash = Stash(await open_sqlite(path, busy_seconds=0.05), settings={"automatic": False})
    attempts: asyncio.Queue[None] = asyncio.Queue()
    other = sqlite3.connect(path, isolation_level=None)
    try:
        await stash.record_messages([user(4)], session_id=SESSION)
        before(stash, "acquire_lease", lambda: attempts.put(None))
        async with only_one(stash, SESSION) as held, asyncio.timeout(60):
            assert held
            await attempts.get()
            other.execute("BEGIN IMMEDIATE")
            for _ in range(4):  # while the third begins, the second at least has failed
                await attempts.get()
            other.execute("ROLLBACK")
            [ended] = other.execute("SELECT ends FROM notes WHERE kind = 'lease'").fetchone()
            for _ in range(3):
                await attempts.get()
            [renewed] = other.execute("SELECT ends FROM notes WHERE kind = 'lease'").fetchone()
        assert renewed > ended
    finally:
        other.close()
        await stash.close()


async def test_a_compaction_whose_lease_was_taken_by_another_stops_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    path = tmp_path / "l.db"
    with model_provider(Answer(waits_for=threading.Event())) as provider:
        settings = {"window": 16_000, "summarizer_base_url": provider.url, "estimator": "chars"}
        async with stash_at(path, api_key=KEY, **settings) as stash:
            await stash.record_messages(LONG, session_id=SESSION)
            compacting = asyncio.create_task(stash.compact_session(SESSION))
            assert await asyncio.to_thread(provider.asked.wait, 30)
            other = sqlite3.connect(path)
            other.execute("""UPDATE notes SET record = '"another"' WHERE kind = 'lease'""")
            other.commit()
            other.close()
            result = await compacting
        async with stash_at(path, window=200_000) as stash:
            shown = await view(stash)
    assert not result.compacted
    assert "lost its lease" in result.reason
    assert "another process has taken it" in caplog.text
    assert as_bytes(shown) == as_bytes(LONG)


async def test_a_compaction_that_is_being_stored_as_its_lease_is_lost_says_that_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> None:
        while "lost its lease" not in caplog.text:
            time.sleep(0.01)

    async def lost() -> None:
        other = sqlite3.connect(path)
        other.execute("""UPDATE notes SET record = '"another"' WHERE kind = 'lease'""")
        other.commit()
        other.close()
        await asyncio.to_thread(said)

    monkeypatch.setattr(leases, "RENEW_SECONDS", 0.05)
    path = tmp_path / "s.db"
    async with stash_at(path, window=16_000, estimator="chars") as stash:
        await stash.record_messages(LONG, session_id=SESSION)
        before(stash, "append_edits", lost)
        result = await stash.compact_session(SESSION, strategy="extractive")
        assert result.compacted
        assert result.summary is not None
        assert result.summary.split("\n")[1] in str(await view(stash))


async def test_a_lease_that_ends_while_the_database_is_busy_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def busy() -> None:
        raise StoreBusyError("locked by another process")

    for name, seconds in (("LEASE_SECONDS", 0.3), ("RENEW_SECONDS", 0.1), ("RETRY_SECONDS", 0.05)):
        monkeypatch.setattr(leases, name, seconds)
    async with stash_at(tmp_path / "e.db") as stash:
        await stash.record_messages([user(4)], session_id=SESSION)
        async with asyncio.timeout(60), only_one(stash, SESSION) as held:
            assert held
            before(stash, "acquire_lease", busy)
            await asyncio.sleep(3_600)
    assert "could not be renewed: locked by another process" in caplog.text


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


async def test_an_error_under_a_lease_is_raised_as_it_is(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "x.db") as stash:
        await stash.record_messages([user(4)], session_id=SESSION)
        with pytest.raises(ZeroDivisionError):
            async with only_one(stash, SESSION):
                raise ZeroDivisionError
        async with only_one(stash, SESSION) as held:
            assert held


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
