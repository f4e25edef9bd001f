"""Large bodies are in a table of their own, and leave it with their messages."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

from contextstash_storage.sqlite.store import SqliteStore
from tests.support.stored_sessions import SESSION, bodies, new_session, record, says

LARGE = [f"large {seed} {random.Random(seed).randbytes(2_000).hex()}" for seed in range(12)]
SMALL = [f"small {number}" for number in range(12)]
TEXTS = [text for pair in zip(LARGE, SMALL, strict=True) for text in pair]


def stored(path: Path) -> list[bytes]:
    with closing(sqlite3.connect(path)) as db:
        return [content for (content,) in db.execute("SELECT content FROM large_bodies ORDER BY message")]


async def test_large_and_small_bodies_come_back_in_order(store: SqliteStore, path: Path) -> None:
    await record(store, *map(says, TEXTS))
    assert [body["content"] for body in await bodies(store)] == TEXTS
    assert len(stored(path)) == len(LARGE)
    found = await store.read_messages_at(SESSION, [0, 1, 6])
    assert [message.body for message in found] == [{"role": "user", "content": TEXTS[seq]} for seq in (0, 1, 6)]
    assert [hit.seq for hit in await store.search(LARGE[5].split()[2])] == [10]


async def test_no_large_body_is_left_of_a_deleted_session(store: SqliteStore, path: Path) -> None:
    await new_session(store, "kept")
    for number, text in enumerate(TEXTS):
        await record(store, says(text), session_id=SESSION if number % 4 else "kept")
    deleted = stored(path)
    assert await store.delete_session(SESSION)
    kept = stored(path)
    assert len(kept) == 6
    files = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    assert not [content for content in deleted if content not in kept and content[40:80] in files]
    assert [body["content"] for body in await bodies(store, "kept")] == TEXTS[::4]
