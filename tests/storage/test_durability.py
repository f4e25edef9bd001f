"""Law 6: acknowledged data survives kills, cancellations and lock conflicts, and no file is left corrupt."""

from __future__ import annotations

import asyncio
import os
import random
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from sqlcipher3 import dbapi2 as sqlite3

from contextstash_storage.errors import StoreBusyError, StoreError
from contextstash_storage.sqlite import close, connect, in_transaction, open_sqlite
from contextstash_storage.store import SessionStore
from contextstash_storage.transaction import VERSION, Tx, only
from tests.support import killed_workers
from tests.support.killed_workers import Ledger, kill_once
from tests.support.stashes import stash_at
from tests.support.stored_sessions import SESSION, answers, bodies, conversation, new_session, record, says

pytestmark = pytest.mark.processes

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


def test_whatever_a_process_does_when_it_is_killed_is_done_whole_or_not_at_all(tmp_path: Path) -> None:
    ledger = Ledger()
    for number in range(KILLS):
        kill_once(tmp_path, ledger, number)
    assert sum(ledger.kills.values()) == KILLS


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


async def test_a_reader_sees_one_moment_s_state(path: Path) -> None:
    reader = await connect(path)
    writer = await connect(path)
    await writer.run(lambda db: db.executescript(f"CREATE TABLE t (x); PRAGMA user_version = {VERSION}"))

    def read_twice(tx: Tx) -> tuple[int, int]:
        before = only(tx.rows("SELECT count(*) FROM t"))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("INSERT INTO t VALUES (1)")
        return before, only(tx.rows("SELECT count(*) FROM t"))

    assert await reader.run(lambda db: in_transaction(db, read_twice, "BEGIN")) == (0, 0)
    await close(reader, writer)
