"""The bodies of old sessions are packed together: much smaller, and everything works as before."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from contextstash_storage.codec.packs import PACK_BYTES, pack_number
from contextstash_storage.errors import StoreError
from contextstash_storage.records import NewMessage
from contextstash_storage.sqlite import dictionaries, open_sqlite, packs
from contextstash_storage.sqlite.conversion import convert
from contextstash_storage.sqlite.store import SqliteStore
from tests.storage.sqlite.test_dictionaries import talk
from tests.support.killed_workers import check_files
from tests.support.stored_sessions import SESSION, answers, bodies, calls, new_session, record, says

WORDS = [f"word{number}" for number in range(300)]


def text(seed: int, words: int) -> str:
    return " ".join(random.Random(seed).choices(WORDS, k=words))


LARGE = text(1, 4_000)
SAID = [
    *(says(f"ask {number}: {text(number, 60)}") for number in range(60)),
    says(f"large {LARGE}"),
    calls("call_1", "cat notes.txt"),
    answers("call_1", LARGE),
    answers("call_2", LARGE, "out_b"),
    says("broken \ud83d surrogate and \x00"),
    says("packed at the end"),
]


def rows(path: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as db:
        return db.execute(sql).fetchall()


def alone(path: Path) -> list[int]:
    """The positions of the bodies that are in no pack."""
    stored = rows(path, "SELECT seq, body FROM messages ORDER BY seq")
    return [seq for seq, body in stored if pack_number(body) is None]


def said(messages: list[NewMessage]) -> list[Any]:
    return [message.body for message in messages]


async def packed(store: SqliteStore, messages: list[NewMessage] = SAID) -> None:
    await record(store, *messages)
    assert await store.unindex_sessions([SESSION]) == 1
    packs._known.clear()


async def test_every_body_comes_back_equal_from_a_tenth_of_the_room(store: SqliteStore, path: Path) -> None:
    await record(store, *SAID)
    before = rows(path, "SELECT sum(length(body)) FROM messages")[0][0]
    await store.unindex_sessions([SESSION])
    assert alone(path) == []
    assert rows(path, "SELECT count(*) FROM blobs UNION ALL SELECT count(*) FROM large_bodies") == [(0,), (0,)]
    assert rows(path, "SELECT sum(length(body)) FROM messages")[0][0] < before / 10
    packs._known.clear()
    assert await bodies(store) == said(SAID)
    found = await store.read_messages_at(SESSION, [3, 62, 64])
    assert [message.body for message in found] == [SAID[3].body, SAID[62].body, SAID[64].body]
    assert [message.seq for message in await store.read_messages(SESSION, first=60, last=62)] == [60, 61, 62]
    check_files(path)


async def test_what_is_recorded_afterwards_stands_alone_until_it_is_old(store: SqliteStore, path: Path) -> None:
    await packed(store)
    later = [says(f"later {number}") for number in range(5)]
    await record(store, *later)
    assert alone(path) == list(range(len(SAID), len(SAID) + 5))
    assert await bodies(store) == said([*SAID, *later])
    await store._index_work.wait()
    assert [hit.seq for hit in await store.search("notes")] == [61]
    assert [hit.seq for hit in await store.search("later", limit=9)]
    await store.unindex_sessions([SESSION])
    assert alone(path) == []
    assert rows(path, "SELECT count(*) FROM packs") == [(2,)]
    assert await bodies(store) == said([*SAID, *later])
    check_files(path)


async def test_it_is_indexed_again_from_its_packs_and_deleted_with_them(store: SqliteStore, path: Path) -> None:
    await new_session(store, "kept")
    await record(store, says(f"large {LARGE}"), session_id="kept")
    await packed(store)
    assert await store.index_session(SESSION)
    assert {hit.seq for hit in await store.search("large", limit=9) if hit.session_id == SESSION} == {60}
    content = [content for (content,) in rows(path, "SELECT content FROM packs")]
    assert await store.delete_session(SESSION)
    assert rows(path, "SELECT count(*) FROM packs") == [(0,)]
    files = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    assert not any(each[1_000:1_040] in files for each in content)
    assert await bodies(store, "kept") == [says(f"large {LARGE}").body]
    check_files(path)


async def test_the_next_process_packs_what_a_killed_one_or_a_former_version_left(
    store: SqliteStore, path: Path
) -> None:
    await record(store, *SAID)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM search_entries")
        db.execute("INSERT INTO search_pieces (search_pieces) VALUES ('delete-all')")
        db.execute(f"UPDATE sessions SET unindexed = {len(SAID)}")
    again = await open_sqlite(path)
    await again._deletion.finish()
    assert alone(path) == []
    assert await bodies(again) == said(SAID)
    await again.close()


async def test_a_body_as_large_as_a_pack_and_one_that_is_damaged_stand_alone(store: SqliteStore, path: Path) -> None:
    huge = says(text(2, PACK_BYTES // 5))
    await record(store, says("before"), huge, *(says(text(number, 400)) for number in range(300)), says("damaged"))
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE messages SET body = x'01ff' WHERE seq = 302")
    await store.unindex_sessions([SESSION])
    assert alone(path) == [1, 302]
    assert len(rows(path, "SELECT pack FROM packs")) > 1
    assert (await store.read_messages_at(SESSION, [1]))[0].body == huge.body


async def test_the_dictionary_goes_when_no_message_needs_it(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dictionaries, "MIN_PACKED", 2_000)
    first, second = talk(64, seed=1), talk(64, seed=2)
    for start in range(0, 64, 8):
        await record(store, *first[start : start + 8])
    assert rows(path, "SELECT count(*) FROM dictionaries") == [(1,)]
    await store.unindex_sessions([SESSION])
    assert rows(path, "SELECT count(*) FROM dictionaries") == [(0,)]
    for start in range(0, 64, 8):
        await record(store, *second[start : start + 8])
    assert rows(path, "SELECT count(*) FROM dictionaries") == [(1,)], "the messages that stand alone have their own"
    dictionaries._known.clear()
    assert await bodies(store) == said([*first, *second])


async def test_a_damaged_or_lost_pack_is_said_and_all_else_can_be_read(store: SqliteStore, path: Path) -> None:
    await packed(store)
    await record(store, says("later"))
    for damage in ("UPDATE packs SET content = x'00' || substr(content, 2)", "DELETE FROM packs"):
        with closing(sqlite3.connect(path)) as db, db:
            db.execute(damage)
        packs._known.clear()
        with pytest.raises(StoreError, match="cannot be decompressed"):
            await bodies(store)
        assert (await store.read_messages(SESSION, first=len(SAID)))[0].body == says("later").body


async def test_a_text_can_be_masked_after_it_was_packed(store: SqliteStore) -> None:
    await packed(store)
    await store.index_session(SESSION)
    assert await store.change_texts(lambda text: text.replace("notes", "•••••")) == 1
    assert not await store.search("notes")
    assert await bodies(store) == said(SAID)


async def test_an_encrypted_database_has_packs_too_and_keeps_them_when_it_is_decrypted(path: Path) -> None:
    pytest.importorskip("sqlcipher3")
    key = bytes(range(32))
    encrypted = await open_sqlite(path, find_key=lambda: key)
    await new_session(encrypted)
    await packed(encrypted)
    await encrypted.close()
    assert convert(path, key, encrypt=False)
    assert alone(path) == []
    plain = await open_sqlite(path)
    assert await bodies(plain) == said(SAID)
    await plain.close()
    assert convert(path, key, encrypt=True)
    again = await open_sqlite(path, find_key=lambda: key)
    packs._known.clear()
    assert await bodies(again) == said(SAID)
    await again.close()
