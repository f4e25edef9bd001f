"""An encrypted database: nothing in its files can be read, and changing it to one and back loses nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path

import pytest

from contextstash_storage.database_file import MARK, FindKey, convert
from contextstash_storage.databases import open_store
from contextstash_storage.errors import StoreBusyError, StoreError
from contextstash_storage.records import Native
from contextstash_storage.sqlite import look_at, open_sqlite
from contextstash_storage.store import SessionStore
from tests.storage.test_sessions import SECRET, fill_secret, marks, others
from tests.support.stored_sessions import SESSION, bodies, held, new_session

KEY = bytes(range(32))


def no_key() -> None:
    """For files that are not encrypted."""


def our_key() -> bytes:
    return KEY


def every_file(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def contents(path: Path, find_key: FindKey) -> dict[str, list[Native]]:
    async with await open_sqlite(path, find_key=find_key) as store:
        return {each.session_id: await bodies(store, each.session_id) for each in await store.list_sessions()}


async def plain(path: Path) -> dict[str, list[Native]]:
    """A plain database of some sessions, and what is in it."""
    async with await open_sqlite(path) as store:
        await others(store)
        await fill_secret(store, "secret")
    return await contents(path, no_key)


async def test_no_file_of_an_encrypted_database_holds_what_is_in_it(path: Path) -> None:
    whole = await plain(path)
    assert SECRET.encode() in every_file(path.parent)
    assert convert(path, KEY, encrypt=True)
    assert marks(path) == {}
    assert path.read_bytes()[:16] == MARK
    assert await contents(path, our_key) == whole
    assert marks(path) == {}
    assert convert(path, KEY, encrypt=False)
    assert await contents(path, no_key) == whole
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]


async def test_neither_the_log_nor_an_index_can_be_read_while_it_is_written(path: Path) -> None:
    async with await open_sqlite(path, find_key=our_key) as store:
        await fill_secret(store, "secret")
        assert path.with_name(f"{path.name}-wal").stat().st_size > 0
        assert [hit.session_id for hit in await store.search(SECRET, limit=1)] == ["secret"]
        assert marks(path) == {}
        assert await store.delete_session("secret")
        assert not await store.search(SECRET)
    assert convert(path, KEY, encrypt=False)
    assert marks(path) == {}


@pytest.mark.parametrize("how", ["idle", "reading"])
async def test_a_database_that_another_process_has_open_is_left_as_it_is(
    path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("contextstash_storage.database_file.WAIT_SECONDS", 0.1)
    whole = await plain(path)
    with held(path, how), pytest.raises(StoreBusyError, match="open in another process, and nothing was changed"):  # type: ignore[arg-type]
        convert(path, KEY, encrypt=True)
    assert await contents(path, no_key) == whole


WORKER = f"""
import asyncio, signal, sys
sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
from pathlib import Path
from contextstash_storage.errors import StoreBusyError
from contextstash_storage.sqlite import open_sqlite
from tests.support.stored_sessions import record, says
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))

async def main():
    number = 0
    while not stopped:
        number += 1
        try:
            store = await open_sqlite(Path(sys.argv[1]), find_key=lambda: bytes(range(32)))
        except StoreBusyError:
            continue
        try:
            await record(store, says(f"worker {{sys.argv[2]}} text {{number}}"))
            print(number, flush=True)
        finally:
            await store.close()

print("ready", flush=True)
asyncio.run(main())
"""


@contextmanager
def working(path: Path, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that open the database, record a message, say so and close it, again and again."""
    command = [sys.executable, "-c", WORKER, str(path)]
    with ExitStack() as stack:
        processes = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(count)]
        for process in processes:
            stack.enter_context(process)
            stack.callback(process.kill)
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
        yield processes


async def test_nothing_is_lost_that_others_record_while_it_is_encrypted_and_decrypted(path: Path) -> None:
    async with await open_sqlite(path) as store:
        await new_session(store)
    changes = 0
    with working(path, 2) as processes:
        give_up = time.monotonic() + 60
        while changes < 6 and time.monotonic() < give_up:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("contextstash_storage.database_file.WAIT_SECONDS", 0.5)
                try:
                    changes += await asyncio.to_thread(convert, path, KEY, encrypt=changes % 2 == 0)
                except StoreBusyError:
                    await asyncio.sleep(random.uniform(0, 0.05))
        for process in processes:
            process.send_signal(signal.SIGTERM)
        said = [process.communicate(timeout=60)[0].split() for process in processes]
        assert [process.returncode for process in processes] == [0, 0]
    assert changes >= 2
    texts = [str(body) for body in (await contents(path, our_key))[SESSION]]
    wanted = [f"worker {number} text {text}" for number, done in enumerate(said) for text in done]
    assert all(said)
    assert [text for text in wanted if not any(f"{text}'" in found for found in texts)] == []


CONVERT = f"""
import sys
sys.path[:0] = {[str(Path(__file__).parents[2])]!r}
from pathlib import Path
from contextstash_storage.database_file import convert
print("ready", flush=True)
sys.stdin.readline()
convert(Path(sys.argv[1]), bytes(range(32)), encrypt=sys.argv[2] == "encrypt")
"""


def killed_after(command: list[str], seconds: float | None) -> None:
    """Start a process that converts, and kill it after this time; None is when it has ended."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("go\n")
        process.stdin.flush()
        if seconds is None:
            process.communicate()
        else:
            time.sleep(seconds)
        process.kill()


@pytest.mark.parametrize("what", ["encrypt", "decrypt"])
async def test_a_kill_leaves_the_database_as_it_was_or_changed(path: Path, tmp_path: Path, what: str) -> None:
    whole = await plain(path)
    if what == "decrypt":
        convert(path, KEY, encrypt=True)
    before = tmp_path / "before"
    shutil.copyfile(path, before)
    begun = time.monotonic()
    convert(path, KEY, encrypt=what == "encrypt")
    seconds = time.monotonic() - begun
    seen = set()
    for after in (*(1.5 * seconds * number / 10 for number in range(11)), None):
        shutil.copyfile(before, path)
        command = [sys.executable, "-c", CONVERT, str(path), what]
        await asyncio.to_thread(killed_after, command, after)
        seen.add(path.read_bytes()[:16] == MARK)
        assert await contents(path, our_key) == whole
        assert list(path.parent.glob("*.converting")) == []
        if what == "encrypt" and path.read_bytes()[:16] == MARK:
            assert marks(path) == {}
    assert seen == {False, True}


KILLED_WHEN_REPLACED = """
import os, signal
from contextstash_storage import database_file
sync = database_file._sync
database_file._sync = lambda path: os.kill(os.getpid(), signal.SIGKILL) if path.is_dir() else sync(path)
"""
"""Is killed when the new file has taken the place of the old one, which is not overwritten yet."""


async def test_the_old_file_is_overwritten_by_the_next_opening_if_the_process_is_killed_before(path: Path) -> None:
    whole = await plain(path)
    script = CONVERT.replace("print(", f"{KILLED_WHEN_REPLACED}print(")
    with path.open("rb") as old:  # as it is on the disk, whatever its name
        await asyncio.to_thread(killed_after, [sys.executable, "-c", script, str(path), "encrypt"], 5.0)
        assert path.read_bytes()[:16] == MARK
        assert await contents(path, our_key) == whole
        assert set(old.read()) == {0}


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_disk_without_room_leaves_the_database_as_it_was_or_converted_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, is_replaced: bool
) -> None:
    whole = await plain(path)

    def full(written: Path) -> None:
        if written.is_dir() or not is_replaced:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("contextstash_storage.database_file._sync", full)
    with nullcontext() if is_replaced else pytest.raises(StoreError, match="could not be converted and is as it was"):
        assert convert(path, KEY, encrypt=True)
    assert await contents(path, our_key) == whole
    assert (path.read_bytes()[:16] == MARK) == is_replaced
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name]


async def test_each_file_that_cannot_be_opened_says_what_to_do(path: Path, tmp_path: Path) -> None:
    await plain(path)
    convert(path, KEY, encrypt=True)
    with pytest.raises(StoreError, match="is encrypted, and no setting says where its key is"):
        await open_store(path)
    with pytest.raises(StoreError, match="was encrypted with another key than the one that"):
        await open_store(path, find_key=lambda: b"x" * 32)
    with pytest.raises(StoreError, match="was encrypted with another key than the one that"):
        convert(path, b"x" * 32, encrypt=False)
    with pytest.raises(StoreError, match="is encrypted, and no setting says"):
        look_at(path)
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(os.urandom(9_000))
    for find_key in (no_key, our_key):
        with pytest.raises(StoreError, match=r"is damaged or is no SQLite database|is no SQLite"):
            await open_store(garbage, find_key=find_key)
    assert look_at(path, our_key).encrypted


async def test_a_plain_database_stays_plain_for_who_has_a_key_and_a_new_one_is_encrypted(path: Path) -> None:
    whole = await plain(path)
    assert await contents(path, our_key) == whole
    assert not look_at(path, our_key).encrypted
    new = path.with_name("new.db")
    store: SessionStore = await open_sqlite(new, find_key=our_key)
    await store.close()
    assert new.read_bytes()[:16] == MARK
    made = path.with_name("made.db")
    assert not convert(made, KEY, encrypt=True)
    assert made.stat().st_mode & 0o777 == 0o600
