"""Old sessions that are taken out of the search index: smaller, read as before, and indexed again when needed."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from contextstash.context.window.settings import resolve_settings
from contextstash.service.stash import Stash
from contextstash_storage.sqlite.store import SqliteStore
from tests.support.killed_workers import check_files
from tests.support.stashes import as_bytes, history, stash_at, valid_view
from tests.support.traces import trace_files

FORMAT = "openai-chat"
LATER = datetime.now(UTC) + timedelta(days=60)


def messages(name: str, count: int = 40) -> list[dict[str, object]]:
    return [
        {"role": ("user", "assistant")[number % 2], "content": f"planted{name}{number} " + f"words of {name} " * 30}
        for number in range(count)
    ]


async def fill(stash: Stash) -> None:
    for name in ("old", "other"):
        await stash.record_messages(messages(name), session_id=name, format=FORMAT)


async def indexed(stash: Stash) -> None:
    for _ in range(1_000):
        if not await stash._access.store.unindexed_messages():
            return
        await asyncio.sleep(0.01)


async def hits(stash: Stash, word: str, session_id: str | None = None) -> int:
    scope = "session" if session_id else "everywhere"
    return len((await stash.search_history(word, session_id=session_id, scope=scope)).hits)


def words(path: Path, word: str) -> bool:
    return any(word.encode() in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


async def test_a_session_is_smaller_and_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stash_at(path) as stash:
        await fill(stash)
        before, size = await history(stash, "old"), sum((await stash._access.store.session_sizes() or {}).values())
        assert words(path, "planted"), "FTS5 keeps words as they are"
        assert await stash._access.store.unindex_sessions(["old"]) == 1
        assert await stash._access.store.unindex_sessions(["old"]) == 0
        assert as_bytes(await history(stash, "old")) == as_bytes(before)
        await valid_view(stash, FORMAT, "old")
        after = sum((await stash._access.store.session_sizes() or {}).values())
        assert after is not None
        assert size is not None
        assert after < size
    assert not words(path, "plantedold7"), "no word is left in the files"
    check_files(path)


async def test_a_search_everywhere_says_so_and_one_in_the_session_finds_it_again(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db") as stash:
        await fill(stash)
        await stash._access.store.unindex_sessions(["old"])
        found = await stash.search_history("plantedold7", scope="everywhere")
        assert not found.hits
        assert found.note is not None
        assert "1 old session not searched" in found.note
        assert await hits(stash, "plantedother7") == 1
        assert await hits(stash, "plantedold7", "old") == 1
        assert "not searched" not in ((await stash.search_history("plantedold7", scope="everywhere")).note or "")
        assert await hits(stash, "plantedold7") == 1
    check_files(tmp_path / "s.db")


async def test_a_message_that_is_recorded_brings_all_of_it_back(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db") as stash:
        await fill(stash)
        await stash._access.store.unindex_sessions(["old"])
        await stash.record_messages([{"role": "user", "content": "afterwards"}], session_id="old")
        await indexed(stash)
        assert await hits(stash, "plantedold7") == 1
        assert await hits(stash, "afterwards") == 1
        assert len(await history(stash, "old")) == 41


async def test_it_is_deleted_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stash_at(path) as stash:
        await fill(stash)
        await stash._access.store.unindex_sessions(["old"])
        await stash.delete_session("old")
        assert await hits(stash, "plantedother7") == 1
    assert not words(path, "plantedold")
    check_files(path)
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM sessions").fetchone() == (1,)


async def test_what_a_killed_process_began_is_finished_at_the_next_opening(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    async with stash_at(path) as stash:
        await fill(stash)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE sessions SET unindexed = 0 WHERE session_id = 'old'")
    async with stash_at(path) as stash:
        store = stash._access.store
        assert isinstance(store, SqliteStore)
        await store._deletion.finish()
    assert not words(path, "plantedold7")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT session_id, unindexed FROM sessions ORDER BY 1").fetchall() == [
            ("old", 40),
            ("other", None),
        ]


async def test_retention_takes_sessions_out_by_their_age(tmp_path: Path) -> None:
    async with stash_at(tmp_path / "s.db") as stash:
        await fill(stash)
        settings = resolve_settings({"index_days": 30})
        assert (await stash.retain(LATER, settings=settings)).unindexed == 2
        assert await hits(stash, "plantedold7") == 1
        assert (await stash.retain(LATER, settings=settings, dry_run=False)).unindexed == 2
        assert (await stash.retain(LATER, settings=settings)).unindexed == 0
        assert await hits(stash, "plantedold7") == 0


async def test_recorded_sessions_come_back_equal(tmp_path: Path) -> None:
    from contextstash.hosts.following.ingest import ingest

    files = [path for _, path in trace_files() if path.suffix == ".jsonl" and path.parent.name == "codex"][:1]
    async with stash_at(tmp_path / "s.db") as stash:
        for file in files:
            await ingest(stash, file, reduce=False)
        for line in (await stash.list_sessions()).sessions:
            before = await history(stash, line.session_id)
            await stash._access.store.unindex_sessions([line.session_id])
            assert as_bytes(await history(stash, line.session_id)) == as_bytes(before)
            assert await hits(stash, "the", line.session_id)
    check_files(tmp_path / "s.db")
