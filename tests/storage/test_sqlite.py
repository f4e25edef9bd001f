"""Law 6: acknowledged data survives kills, cancellations and lock conflicts, no file is left corrupt, and a damaged one
is noticed. Recordings that wait for the same lock are committed together."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.documents import BLOCKS
from contextstash_storage.errors import BadInputError, ContextstashError, StoreBusyError, StoreError
from contextstash_storage.records import Event, KnownPart, ProxiedSession
from contextstash_storage.sqlite import look_at, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import Tx
from tests.support import killed_workers
from tests.support.effort import THOROUGH
from tests.support.killed_workers import Ledger, kill_once
from tests.support.stashes import stash_at
from tests.support.stored_sessions import (
    SESSION,
    SqliteStore,
    answers,
    archiving,
    bodies,
    calls,
    conversation,
    new_session,
    record,
    says,
)

KILLS = 3
"""bench/kills.py does 300."""

ROOT = Path(__file__).parents[2]


def recording(path: Path, session_id: str, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", killed_workers.__name__, str(path), session_id, str(number)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def check_integrity(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.processes
@pytest.mark.parametrize("after", random.Random(6).sample(range(1, 200), 3))
async def test_every_acknowledged_message_outlives_kill_9(path: Path, after: int) -> None:
    with recording(path, SESSION, 100_000) as process:
        assert process.stdout
        acknowledged = [int(process.stdout.readline()) for _ in range(after)]
        process.kill()
        acknowledged += [int(line) for line in process.stdout.read().splitlines()]
    async with await open_sqlite(path) as store:
        read = await store.read_messages(SESSION)
        assert [message.seq for message in read][: len(acknowledged)] == acknowledged
        assert len(read) <= len(acknowledged) + 1
        hits = await store.search(f'"{acknowledged[-1]} word"', limit=1)
        assert hits
        await record(store, says("and on"))
    check_integrity(path)


@pytest.mark.processes
def test_whatever_a_process_does_when_it_is_killed_is_done_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = Ledger()
    for number in range(KILLS):
        kill_once(tmp_path, ledger, number)
    assert sum(ledger.kills.values()) == KILLS


@pytest.mark.processes
async def test_processes_share_one_new_file_and_one_session(path: Path) -> None:
    processes = [recording(path, SESSION, 30) for _ in range(3)]
    positions: list[int] = []
    for process in processes:
        output, _ = await asyncio.to_thread(process.communicate)
        assert process.returncode == 0
        positions += map(int, output.split())
    assert sorted(positions) == list(range(90))
    check_integrity(path)


@pytest.mark.parametrize("steps", range(0, 12, 2))
async def test_an_append_that_is_cancelled_is_stored_whole_or_not_at_all(store: SessionStore, steps: int) -> None:
    task = asyncio.create_task(record(store, *conversation(10)))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await record(store, says("afterwards"))
    assert len(await bodies(store)) in (1, 21)


async def test_a_closed_store_says_so(path: Path) -> None:
    store = await open_sqlite(path)
    await store.close()
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.list_sessions()
    with pytest.raises(StoreError, match="closed"):
        await new_session(store)


@pytest.mark.parametrize("wait", [0.0, 0.001, 0.1])
async def test_an_opening_that_is_cancelled_leaves_nothing_open(path: Path, wait: float) -> None:
    before = threading.active_count()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        opening = asyncio.create_task(open_sqlite(path, busy_seconds=0.3))
        await asyncio.sleep(wait)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        other.execute("ROLLBACK")
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("CREATE TABLE alone (x)")  # refused if another connection were open
    assert threading.active_count() <= before + 1  # one of asyncio's own


@pytest.mark.processes
def test_a_program_that_does_not_close_its_store_ends_all_the_same(path: Path) -> None:
    program = (
        "import asyncio, pathlib, sys; from contextstash_storage.sqlite import open_sqlite;"
        " store = asyncio.run(open_sqlite(pathlib.Path(sys.argv[1]))); print('opened')"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "opened\n", "")


async def test_a_database_held_by_another_process_is_an_error_with_words_and_loses_nothing(path: Path) -> None:
    async with await open_sqlite(path, busy_seconds=0.05) as store:
        await new_session(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreBusyError, match="Try again"):
                await record(store, says("hi"))
            assert (await store.get_session(SESSION)).counters.messages == 0
            other.execute("ROLLBACK")
        assert len((await record(store, says("hi"))).messages) == 1


@pytest.mark.processes
def test_a_full_disk_of_the_system_is_an_error_with_words_and_loses_nothing(path: Path) -> None:
    script = (
        "import asyncio, random, resource, sys\n"
        "from pathlib import Path\n"
        "from tests.support.stashes import stash_at\n"
        "async def main():\n"
        "    async with stash_at(Path(sys.argv[1])) as stash:\n"
        "        await stash.record_messages([{'role': 'user', 'content': 'before'}], session_id='s')\n"
        "        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
        "        text = random.Random(1).randbytes(2_000_000).hex()\n"
        "        try:\n"
        "            await stash.record_messages([{'role': 'user', 'content': text}], session_id='s')\n"
        "        except Exception as error:\n"
        "            print(type(error).__name__, error)\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.startswith("Store"), done.stdout + done.stderr
    assert "disk" in done.stdout
    assert "Traceback" not in done.stderr
    assert asyncio.run(_stored(path)) == ["before"]
    check_integrity(path)


async def _stored(path: Path) -> list[str]:
    async with stash_at(path) as stash:
        return [line.message["content"] for line in (await stash.read_messages("s")).messages]


@pytest.mark.skipif(os.name != "posix", reason="file modes are POSIX's")
async def test_only_its_owner_may_read_the_file_and_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "data" / "stash.db"
    async with await open_sqlite(path) as store:
        await new_session(store)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


async def test_nothing_blocks_the_event_loop(path: Path) -> None:
    with blockbuster_ctx():
        async with await open_sqlite(path) as store:
            await new_session(store)
            await record(store, *conversation(20), answers("call_0", "long output " * 5_000))
            await store.read_messages(SESSION)
            await store.search("long output")
            await store.delete_session(SESSION)


FLIPS = 1_000 if THOROUGH else 60


async def filled(path: Path) -> list[str]:
    """A database of three sessions that grew in small batches; returns what is in each."""
    async with await open_sqlite(path) as store:
        for name in ("one", "two", "three"):
            await new_session(store, name)
            for number in range(50):
                output = answers(f"call_{number}", f"line {number} of {name}\n" * 9, f"out_{name}{number}")
                await record(store, says(f"ask {number}"), calls(f"call_{number}"), output, session_id=name)
            await store.change_session(name, edits=[archiving(2, text=f"archived in {name}")], expected=0)
        return [await everything(store, name) for name in ("one", "two", "three")]


async def everything(store: SessionStore, name: str) -> str:
    """All that a session's view is made of, if it can be searched too."""
    messages = [message.model_dump_json() for message in await store.read_messages(name)]
    edits = [edit.model_dump_json() for edit in await store.read_edits(name)]
    await store.search("line 7", session_ids=[name])
    return "\n".join([*messages, *edits, (await store.get_session(name)).counters.model_dump_json()])


async def read_again(path: Path) -> list[str | None]:
    """What is in each session; None if an error says that it cannot be read."""
    found: list[str | None] = [None] * 3
    with suppress(ContextstashError):
        async with await open_sqlite(path) as store:
            for place, name in enumerate(("one", "two", "three")):
                with suppress(ContextstashError):
                    found[place] = await everything(store, name)
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
            with suppress(StoreError):
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
            await store.read_messages(SESSION, at=[last])
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


@pytest.mark.parametrize(
    "change", ["replace(counters, '150', '120')", "replace(counters, 'messages', 'nessages')", "'{'"]
)
async def test_a_damaged_row_of_a_session_is_said_hides_no_other_and_can_be_deleted(path: Path, change: str) -> None:
    await filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE sessions SET counters = {change} WHERE session = 1")
    assert [name for name, _ in look_at(path).damaged] == ["one"]
    async with await open_sqlite(path) as store:
        assert [each.session_id for each in await store.list_sessions()] == ["three", "two"]
        for read in (store.get_session, store.read_messages, store.read_edits):
            with pytest.raises(StoreError, match="damaged"):
                await read("one")
        await store.put_note("three", ProxiedSession())
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("UPDATE sessions SET counters = '{' WHERE session_id = 'three'")
            db.execute("UPDATE notes SET record = '{' WHERE kind = 'proxied'")
        assert [each.session_id for each in await store.list_sessions(limit=1)] == ["two"]
        assert await store.delete_session("three")
        assert await store.delete_session("one")
    assert look_at(path).damaged == ()


@pytest.mark.parametrize("change", ["DELETE FROM log WHERE kind = 'edit'", "UPDATE outputs SET tokens = tokens + 64"])
async def test_a_missing_edit_and_another_output_are_noticed_by_who_reads_a_view(path: Path, change: str) -> None:
    await filled(path)
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(change)
    async with await open_sqlite(path) as store:
        with pytest.raises(StoreError, match="damaged"):
            await store.read_news(SESSION, KnownPart(first=0, most=999))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE outputs SET handle = 'gut' || substr(handle, 4) WHERE session = 1 AND seq = 23",
        "UPDATE outputs SET tool = 'Cash' WHERE session = 1 AND seq = 23",
        "UPDATE outputs SET tool = CAST(tool AS BLOB) WHERE session = 1 AND seq = 23",
        f"UPDATE entries SET call = {BLOCKS} * 21 WHERE session = 1 AND seq = 23 AND kind = 1",
    ],
)
async def test_no_hit_names_another_handle_tool_or_call_than_its_output_has(path: Path, change: str) -> None:
    await filled(path)
    async with await open_sqlite(path) as store:
        search = partial(store.search, "ls line 7", session_ids=[SESSION], scope="outputs")
        [hit, *_] = await search()
        assert (hit.seq, hit.handles, hit.tool, hit.text[:11]) == (23, ("out_one7",), "Bash", "Bash\nls\nlin")
        with closing(sqlite3.connect(path)) as db, db:
            assert db.execute(change).rowcount == 1
        found = await search()
        assert len(found) == 10
        assert [each.text[:8] for each in found if each.seq == 23] == (["Bash\nlin"] if "entries" in change else [])


async def test_recordings_at_the_same_time_take_fewer_commits_and_one_that_fails_leaves_the_others(
    store: SqliteStore,
) -> None:
    names = [f"session {number}" for number in range(12)]
    for name in names:
        await new_session(store, name)
    seen: list[str] = []
    await store.database.writer.run(lambda db: db.set_trace_callback(seen.append))
    await asyncio.gather(*(record(store, says("first"), session_id=name) for name in names))
    assert 0 < seen.count("COMMIT") < len(names)
    second = [record(store, says("2"), session_id=name, known_by=7 if name == names[3] else 1) for name in names]
    outcomes = await asyncio.gather(*second, return_exceptions=True)
    assert [isinstance(outcome, BadInputError) for outcome in outcomes] == [name == names[3] for name in names]
    assert [len(await bodies(store, name)) for name in names] == [1 if name == names[3] else 2 for name in names]


async def test_a_cancelled_caller_does_not_keep_the_others_from_their_outcome(store: SqliteStore) -> None:
    seen: list[int] = []

    def work_of(number: int) -> Callable[[Tx], None]:
        return lambda tx: seen.append(number)

    calls = [asyncio.create_task(store.database.write_together(work_of(number))) for number in range(4)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[2].cancel()
    await asyncio.gather(calls[1], calls[3])
    assert {1, 3} <= set(seen)
    with pytest.raises(asyncio.CancelledError):
        await calls[2]
