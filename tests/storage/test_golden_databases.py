"""Databases that earlier versions of contextstash wrote: they open, and read and export as they did then."""

from __future__ import annotations

import asyncio
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from contextstash.service.stash import Stash
from contextstash_storage.records import Counters
from contextstash_storage.sqlite import open_sqlite
from tests.support.golden_sessions import SESSIONS, read_sessions
from tests.support.provider_rules import violations
from tests.support.stashes import stash_at, view

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path.name.removesuffix(".db.gz") for path in GOLDEN.glob("*.db.gz"))
KINDS = {"archive", "truncate", "digest", "strip", "summary", "rewind", "restore"}


def then(version: str) -> dict[str, Any]:
    """What that version read of its own database. Counters that it did not have yet have their defaults."""
    read: dict[str, Any] = json.loads((GOLDEN / f"{version}.json").read_text(encoding="utf-8"))
    for session in read.values():
        session["counters"] = {**Counters().model_dump(mode="json"), **session["counters"]}
    return read


def as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


async def indexed(path: Path) -> None:
    """Let a database be indexed to its end, which takes some milliseconds after its first opening."""
    store = await open_sqlite(path)
    for _ in range(10_000):
        if not await store.unindexed_messages():
            break
        await asyncio.sleep(0.005)
    await store.close()


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def stash(version: str, tmp_path: Path) -> AsyncIterator[Stash]:
    path = tmp_path / "golden.db"
    path.write_bytes(gzip.decompress((GOLDEN / f"{version}.db.gz").read_bytes()))
    await indexed(path)
    async with stash_at(path) as opened:
        yield opened


def test_a_golden_database_holds_edits_of_every_kind(version: str) -> None:
    assert {kind for session in then(version).values() for kind in session["edits"]} == KINDS


async def test_a_database_of_an_earlier_version_reads_as_it_did(stash: Stash, version: str) -> None:
    assert as_json(await read_sessions(stash)) == then(version)


async def test_an_export_of_an_earlier_database_reads_as_it_did(stash: Stash, version: str, tmp_path: Path) -> None:
    async with stash_at(tmp_path / "imported.db") as imported:
        for session_id in SESSIONS:
            await imported.import_session([json.dumps(each) async for each in stash.export_session(session_id)])
        read, expected = as_json(await read_sessions(imported)), then(version)
    for session in (*read.values(), *expected.values()):
        for numbered, number in (("events", "event_id"), ("calls", "call_id")):
            session[numbered] = [{**each, number: 0} for each in session[numbered]]
    assert read == expected


async def test_a_session_of_an_earlier_version_is_deleted_with_all_its_words(stash: Stash, version: str) -> None:
    """Its text was stored in another form, from which the index has to be removed."""
    for number, session_id in enumerate(SESSIONS):
        await stash.record_messages([{"role": "user", "content": "one more, zebra"}], session_id=session_id)
        found = [hit.session_id for hit in (await stash.search_history("zebra", limit=20)).hits]
        assert sorted(found) == sorted(SESSIONS[: number + 1])
    for session_id in SESSIONS:
        await stash.delete_session(session_id)
    db = await stash._access.store._writer.read(_left)  # type: ignore[attr-defined]
    assert db == (0, 0, 0)


def _left(db: sqlite3.Connection) -> tuple[int, ...]:
    """How many messages, entries of the index, and words in it there are."""
    db.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.words USING fts5vocab(main, search_pieces, 'row')")
    counts = (
        "SELECT (SELECT count(*) FROM messages), (SELECT count(*) FROM search_entries), (SELECT count(*) FROM words)"
    )
    return tuple(db.execute(counts).fetchone())


async def test_views_of_an_earlier_version_are_valid_and_can_be_worked_on(stash: Stash) -> None:
    for session_id in SESSIONS:
        format_name = (await stash.read_session(session_id)).format
        before = await view(stash, session_id)
        assert violations(str(format_name), before) == []
        await stash.prune_tool_outputs(session_id, keep_last=0)
        compacted = await stash.compact_session(session_id)
        assert violations(str(format_name), await view(stash, session_id)) == []
        if compacted.summary_id:
            await stash.restore_outputs([compacted.summary_id], session_id=session_id)
            assert violations(str(format_name), await view(stash, session_id)) == []
