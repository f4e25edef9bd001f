"""A long session is compressed with a dictionary of its own, which nothing of the session outlives."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextstash_storage.errors import StoreError
from contextstash_storage.records import Counters, NewMessage
from contextstash_storage.sqlite import dictionaries
from contextstash_storage.sqlite.health import look_at
from contextstash_storage.sqlite.store import SqliteStore, open_sqlite
from tests.support.stored_sessions import SESSION, bodies, new_session, record, says

WORDS = [f"{name}_{number}" for name in ("parse", "render", "commit") for number in range(200)]


def talk(count: int, seed: int = 1) -> list[NewMessage]:
    """Messages whose words come again and again."""
    rng = random.Random(seed)
    return [says(" ".join(rng.choices(WORDS, k=60))) for _ in range(count)]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def made(path: Path) -> int:
    """How many dictionaries there are."""
    return int(rows(path, "SELECT count(*) FROM dictionaries")[0][0])


@pytest.fixture(autouse=True)
def _short_sessions_have_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "MIN_PACKED", 2_000)


async def test_messages_after_the_dictionary_take_less_and_all_come_back(store: SqliteStore, path: Path) -> None:
    said = talk(120)
    for start in range(0, 120, 10):
        await record(store, *said[start : start + 10])
    assert made(path) == 1
    assert await bodies(store) == [message.body for message in said]
    sizes = [size for (size,) in rows(path, "SELECT length(body) FROM messages ORDER BY seq")]
    assert sum(sizes[-30:]) < 0.9 * sum(sizes[:10]) * 3
    again = await open_sqlite(path)
    dictionaries._known.clear()
    assert await bodies(again) == [message.body for message in said]
    await again.close()


async def test_a_short_session_has_none(store: SqliteStore, path: Path) -> None:
    await record(store, *[says(f"short {number}") for number in range(40)])
    assert made(path) == 0


async def test_two_processes_write_to_a_session_with_the_dictionary_that_one_made(
    store: SqliteStore, path: Path
) -> None:
    second = await open_sqlite(path)
    said = talk(90)
    for place, message in enumerate(said):
        await record((store, second)[place % 2], message)
    assert made(path) == 1
    assert await bodies(store) == await bodies(second) == [message.body for message in said]
    await second.close()


async def test_a_session_made_again_is_not_read_with_the_former_dictionary(store: SqliteStore, path: Path) -> None:
    await record(store, *talk(100, seed=1))
    assert await store.delete_session(SESSION)
    assert made(path) == 0
    await new_session(store)
    said = talk(100, seed=2)
    await record(store, *said)
    assert await bodies(store) == [message.body for message in said]
    assert made(path) == 1


async def test_a_copied_session_has_a_dictionary_too(store: SqliteStore, path: Path) -> None:
    session = await store.get_session(SESSION)
    said = talk(100)
    copy = session.model_copy(update={"session_id": "copy", "counters": Counters(messages=100)})
    assert await store.copy_session(copy, said)
    assert made(path) == 1
    assert await bodies(store, "copy") == [message.body for message in said]


async def test_a_batch_that_is_rolled_back_leaves_no_dictionary(store: SqliteStore, path: Path) -> None:
    await record(store, *talk(15))

    def fails(*_: object) -> object:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await record(store, *talk(20, seed=2), edits=fails)
    assert made(path) == 0
    said = talk(40, seed=3)
    await record(store, *said)
    assert (await bodies(store))[15:] == [message.body for message in said]


async def test_no_file_holds_what_a_deleted_dictionary_held(store: SqliteStore, path: Path) -> None:
    await new_session(store, "kept")
    await record(store, *talk(100, seed=1), session_id="kept")
    await record(store, *talk(100, seed=2))
    found = rows(path, "SELECT content FROM dictionaries WHERE session = 1")
    found += rows(path, "SELECT body FROM messages WHERE session = 1")
    assert len(found) == 101
    assert await store.delete_session(SESSION)
    files = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    assert not [value for (value,) in found if value[8:40] in files]
    assert len(await bodies(store, "kept")) == 100


DAMAGES = {
    "missing": "DELETE FROM dictionaries WHERE session = 1",
    "empty": "UPDATE dictionaries SET content = x'' WHERE session = 1",
    "cut off": "UPDATE dictionaries SET content = substr(content, 1, 1500) WHERE session = 1",
    "other bytes": "UPDATE dictionaries SET content = x'00' || zeroblob(24000) WHERE session = 1",
    "text": "UPDATE dictionaries SET content = x'02' || 'text' WHERE session = 1",
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
async def test_a_damaged_dictionary_takes_nothing_but_the_messages_that_need_it(path: Path, damage: str) -> None:
    store = await open_sqlite(path)
    said = talk(100)
    for session_id in (SESSION, "kept"):
        await new_session(store, session_id)
        for start in range(0, 100, 10):
            await record(store, *said[start : start + 10], session_id=session_id)
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(damage)
    dictionaries._known.clear()
    store = await open_sqlite(path)
    with pytest.raises(StoreError, match="damaged"):
        await store.read_messages(SESSION)
    assert look_at(path).damaged == 1
    for start in range(0, 100, 10):
        await record(store, *said[start : start + 10])
    again = await store.read_messages(SESSION, first=100)
    assert [message.body for message in again] == [message.body for message in said]
    assert rows(path, "SELECT count(*) FROM dictionaries WHERE session = 1 AND mark <> 0") <= [(1,)]
    assert len(await store.search("parse_7 render_9", limit=50)) > 0
    assert await bodies(store, "kept") == [message.body for message in said]
    assert await store.delete_session(SESSION)
    assert await store.delete_session("kept")
    assert rows(path, "SELECT count(*) FROM sessions") == [(0,)]
    await store.close()


async def test_the_dictionaries_in_memory_are_few(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionaries, "MAX_KNOWN", 2)
    for number in range(4):
        await new_session(store, f"{number}")
        await record(store, *talk(60, seed=number), session_id=f"{number}")
    for number in range(4):
        assert len(await bodies(store, f"{number}")) == 60
    assert len(dictionaries._known) <= 2
