"""Measures how long importing, pruning and deleting a long session hold the database's write lock.

Run as `python -m bench.write_lock [MESSAGES [EDITS]]`: by default 100,000 messages and 10,000 edits. Another thread
tries to take the lock every 2 ms; a hold is the time between two successful attempts.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from bench.recording import OWNER, conversation
from contextstash_storage.records import (
    ArchiveEdit,
    Counters,
    Edit,
    NewMessage,
    Part,
    RestoreEdit,
    Session,
    SummaryEdit,
)
from contextstash_storage.sqlite.store import SqliteStore, open_sqlite

MESSAGES, EDITS = 100_000, 10_000
POLL_SECONDS = 0.002
SUMMARIES = 20


class LockWatch:
    """Records the longest time for which the write lock was not available."""

    def __init__(self, path: Path) -> None:
        self.longest = 0.0
        self._path = path
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> LockWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None, timeout=0)) as db:
            free = time.monotonic()
            while not self._ended.wait(POLL_SECONDS):
                try:
                    db.execute("BEGIN IMMEDIATE")
                    db.execute("ROLLBACK")
                except sqlite3.OperationalError:
                    continue
                finally:
                    now = time.monotonic()
                self.longest = max(self.longest, now - free)
                free = now


def session_of(messages: int, session_id: str = "long") -> Session:
    now = datetime.now(UTC)
    counters = Counters(messages=messages, view_messages=messages, parts={Part.USER: messages})
    return Session(
        session_id=session_id, owner=OWNER, format="openai-chat", created_at=now, updated_at=now, counters=counters
    )


def edits(count: int) -> Iterator[Edit]:
    """Archived outputs, then some summaries."""
    for number in range(count):
        text = f"[output out_{number:08d} archived: Read src/part_{number % 40}/module.py, 600 characters; " + "x" * 200
        yield ArchiveEdit(seq=2 * number + 1, block=0, text=text, tokens=60, handle=f"out_{number:08d}")
    for number in range(SUMMARIES):
        yield SummaryEdit(
            first_seq=0,
            last_seq=number,
            summary_id=f"sum_{number}",
            strategy="extractive",
            level="recent",
            text="Before this. " * 100,
            summary="",
            tokens=300,
        )


async def timed(path: Path, name: str, work: Awaitable[object]) -> None:
    begun = time.monotonic()
    with LockWatch(path) as watch:
        await work
    log = path.with_name(path.name + "-wal")
    size = log.stat().st_size / 2**20 if log.exists() else 0
    print(
        f"{name:<30}{time.monotonic() - begun:8.2f} s in all, write lock held {1000 * watch.longest:7.0f} ms at most,"
        f" log {size:.1f} MiB",
        flush=True,
    )


async def measure(path: Path, messages: list[NewMessage], count: int) -> None:
    store: SqliteStore = await open_sqlite(path)
    few = messages[: len(messages) // 10]
    await store.copy_session(session_of(len(few), "kept"), few)
    await timed(path, f"import of {len(messages):,}", store.copy_session(session_of(len(messages)), messages))
    await timed(path, f"prune of {count:,}", store.append_edits("long", list(edits(count)), expected=0))
    undone = RestoreEdit(undoes=tuple(range(1, count)))
    await timed(path, "restore of them", store.append_edits("long", [undone], expected=count + SUMMARIES))
    await timed(path, f"deletion of {len(messages):,}", store.delete_session("long"))
    await timed(path, f"deletion of {len(few):,}", store.delete_session("kept"))
    await store.close()


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    number, pruned = (given + [MESSAGES, EDITS][len(given) :])[:2]
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(Path(folder) / "stash.db", conversation(number), pruned))
