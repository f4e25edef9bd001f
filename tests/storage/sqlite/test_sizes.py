"""What a session is said to take is about what its deletion brings."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from contextstash_storage.records import Counters, NewMessage
from contextstash_storage.sqlite.sizes import used_bytes
from contextstash_storage.sqlite.store import SqliteStore
from tests.support.stored_sessions import new_session, says


def used(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return used_bytes(db)


def counted(counters: Counters, message: NewMessage, seq: int) -> Counters:
    return counters.model_copy(update={"messages": seq + 1, "appended": counters.appended + message.tokens})


async def fill(store: SqliteStore) -> None:
    """Sessions with as many tokens each, of which a repeated text is compressed to nearly nothing."""
    for name in ("repeated", "random", "other"):
        await new_session(store, name)
        for number in range(60):
            noise = random.Random(f"{name}{number}").randbytes(4_500).hex()
            message = says("the same " * 1_000 if name == "repeated" else noise)
            await store.append_messages(name, [message], count=counted)


@pytest.mark.parametrize("name", ["repeated", "random"])
@pytest.mark.parametrize("is_old", [False, True])
async def test_a_deletion_frees_what_the_session_was_said_to_take(
    store: SqliteStore, path: Path, name: str, is_old: bool
) -> None:
    await fill(store)
    if is_old:
        await store.unindex_sessions(["repeated", "random", "other"])
    sizes, before = await store.session_sizes(), used(path)
    assert sum(sizes.values()) == pytest.approx(before, rel=0.01)
    assert sizes["repeated"] < sizes["random"]
    await store.delete_session(name)
    assert before - used(path) == pytest.approx(sizes[name], rel=0.35, abs=60_000)


async def test_another_owner_has_sizes_of_their_own(store: SqliteStore) -> None:
    await fill(store)
    other = store.for_owner("zelda")
    assert await other.session_sizes() == {}
    await new_session(other, "hers")
    assert list(await other.session_sizes()) == ["hers"]
