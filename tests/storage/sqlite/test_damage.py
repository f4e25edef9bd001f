"""A damaged file: no bit can flip without being noticed where a message is read, and the rest stays readable."""

from __future__ import annotations

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import ContextstashError, StoreError
from contextstash_storage.records import Event, ProxiedSession
from contextstash_storage.sqlite import SqliteStore, look_at, open_sqlite
from tests.support.effort import THOROUGH
from tests.support.stored_sessions import SESSION, answers, archiving, bodies, calls, new_session, record, says

FLIPS = 1_000 if THOROUGH else 60


async def filled(path: Path) -> list[str]:
    """A database of three sessions that grew in small batches; returns what is in each."""
    async with await open_sqlite(path) as store:
        for name in ("one", "two", "three"):
            await new_session(store, name)
            for number in range(50):
                output = answers(f"call_{number}", f"line {number} of {name}\n" * 9, f"out_{name}{number}")
                await record(store, says(f"ask {number}"), calls(f"call_{number}"), output, session_id=name)
            await store.append_edits(name, [archiving(2, text=f"archived in {name}")], expected=0)
        return [await everything(store, name) for name in ("one", "two", "three")]


async def everything(store: SqliteStore, name: str) -> str:
    """All that a session's view is made of."""
    messages = [message.model_dump_json() for message in await store.read_messages(name)]
    edits = [edit.model_dump_json() for edit in await store.read_edits(name)]
    return "\n".join([*messages, *edits])


async def read_again(path: Path) -> list[str | None]:
    """What is in each session; None if an error says that it cannot be read."""
    found: list[str | None] = []
    try:
        store = await open_sqlite(path)
    except ContextstashError:
        return [None] * 3
    try:
        for name in ("one", "two", "three"):
            try:
                found.append(await everything(store, name))
            except ContextstashError:
                found.append(None)
    finally:
        await store.close()
    return found


async def test_no_flipped_bit_gives_other_messages_without_an_error(path: Path) -> None:
    whole = await filled(path)
    kept = path.with_name("kept.db")
    shutil.copyfile(path, kept)
    rng = random.Random(8)
    noticed = 0
    for number in range(FLIPS):
        damaged = path.with_name(f"damaged-{number}.db")
        content = bytearray(kept.read_bytes())
        bit = rng.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(content)
        found = await read_again(damaged)
        silent = [place for place, (now, then) in enumerate(zip(found, whole, strict=True)) if now not in (None, then)]
        assert not silent, f"bit {bit}"
        noticed += None in found
        if None in found and found != [None] * 3:
            assert look_at(damaged).damaged or look_at(damaged).check != "ok"
        damaged.unlink()
    assert noticed


async def test_a_damaged_segment_names_its_messages_and_leaves_the_others_readable(path: Path) -> None:
    await filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        changed = "cast(substr(contents, 1, 40) || x'00' || substr(contents, 42) AS BLOB)"
        [body] = db.execute(
            "SELECT segment FROM segments WHERE session = 1 ORDER BY first_seq LIMIT 1 OFFSET 1"
        ).fetchone()
        db.execute(f"UPDATE segments SET contents = {changed} WHERE segment = ?", (body,))
        [first, messages] = db.execute("SELECT first_seq, messages FROM segments WHERE segment = ?", (body,)).fetchone()
    async with await open_sqlite(path) as store:
        last = first + messages - 1
        with pytest.raises(StoreError, match=f"Session 'one'.* messages? {first}"):
            await bodies(store)
        with pytest.raises(StoreError, match="damaged"):
            await store.read_messages_at(SESSION, [last])
        assert len(await store.read_messages(SESSION, first=last + 1)) == 150 - last - 1
        assert len(await store.read_messages(SESSION, bodies=False)) == 150
        assert len(await bodies(store, "two")) == 150
        assert len((await record(store, *[says(f"more {number}") for number in range(200)])).messages) == 200
        assert await store.search("more 7")
        health = look_at(path)
        assert [name for name, _ in health.damaged] == ["one"]
        assert f"message {first}" in health.damaged[0][1] or f"messages {first}" in health.damaged[0][1]
        assert await store.delete_session(SESSION)
    assert look_at(path).damaged == ()


@pytest.mark.parametrize(
    ("table", "what"), [("log", "kind = 'event'"), ("notes", "kind = 'proxied'")], ids=["an event", "a note"]
)
async def test_what_is_damaged_beside_the_messages_is_said_too(path: Path, table: str, what: str) -> None:
    await filled(path)
    store = await open_sqlite(path)
    await store.append_log(SESSION, Event(kind="prune", tokens_before=9, tokens_after=3, reason="old"))
    await store.put_note(SESSION, ProxiedSession(requests=1))
    await store.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE {table} SET record = substr(record, 1, 9) WHERE {what}")
    assert [name for name, _ in look_at(path).damaged] == [SESSION]
    async with await open_sqlite(path) as store:
        with pytest.raises(StoreError, match="damaged"):
            await (store.read_log(SESSION, Event) if table == "log" else store.get_note(SESSION, ProxiedSession))
        assert await bodies(store)
