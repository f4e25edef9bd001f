"""Measures durable recording of single messages relative to plain SQLite inserts, and the cost of reading a session.

Both record the same JSON from an event loop, one message per commit, in write-ahead mode with synchronous=FULL; the
plain inserts run in a worker thread, without an index, counters or lookups.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from contextstash_storage.records import Block, Counters, Message, NewMessage, Output, Part, Session
from contextstash_storage.sqlite.store import SqliteStore, open_sqlite

OWNER = "local"
MESSAGES = 600
ROUNDS = 5
SHORT, LONG = 100, 100_000
READS = 300


def conversation(count: int) -> list[NewMessage]:
    """An agent's turns: a tool call, then its result of about 600 characters, every eighth of about 6,000."""
    messages: list[NewMessage] = []
    for turn in range(count // 2):
        call_id = f"toolu_{turn:020d}"
        path = f"src/part_{turn % 40}/module_{turn}.py"
        call = {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": path}}
        text = f"{path}: line of source number {turn}, quite ordinary\n" * (100 if turn % 8 == 0 else 10)
        result = {"type": "tool_result", "tool_use_id": call_id, "content": text}
        messages += [_call_message(call, call_id, path), _result_message(result, call_id, path, text)]
    return messages


def _call_message(call: Mapping[str, object], call_id: str, path: str) -> NewMessage:
    block = Block(type="tool_call", tokens=30, size=60, call_id=call_id, tool="Read", argument=path)
    return NewMessage(
        body={"role": "assistant", "content": [call]}, role="assistant", blocks=(block,), search_text=path
    )


def _result_message(result: Mapping[str, object], call_id: str, path: str, text: str) -> NewMessage:
    block = Block(type="tool_result", tokens=len(text) // 4, size=len(text), call_id=call_id, tool="Read")
    output = Output(
        handle=f"out_{call_id[-8:]}",
        seq=0,
        block=0,
        tool="Read",
        argument=path,
        tokens=len(text) // 4,
        characters=len(text),
        lines=text.count("\n"),
        sha256="0" * 64,
    )
    return NewMessage(
        body={"role": "user", "content": [result]},
        role="tool",
        kind="tool_result",
        blocks=(block,),
        outputs=(output,),
        search_text=f"Read {path}\n{text}",
    )


def count(counters: Counters, message: NewMessage | Message, seq: int) -> Counters:
    """The counters after one more message, all of whose tokens are counted as tool results."""
    parts = dict(counters.parts)
    parts[Part.TOOL_RESULTS] = parts.get(Part.TOOL_RESULTS, 0) + message.tokens
    return counters.model_copy(
        update={"messages": seq + 1, "view_messages": counters.view_messages + 1, "parts": parts}
    )


async def new_session(store: SqliteStore, session_id: str) -> None:
    now = datetime.now(UTC)
    await store.create_session(Session(session_id=session_id, format="openai-chat", created_at=now, updated_at=now))


async def recording_rate(folder: Path, messages: Sequence[NewMessage]) -> float:
    """Messages a second, each recorded, indexed and durable before the next."""
    store = await open_sqlite(folder / "stash.db")
    await new_session(store, "one")
    begun = time.perf_counter()
    for message in messages:
        await store.append_messages("one", [message], count=count)
    rate = len(messages) / (time.perf_counter() - begun)
    await store.close()
    return rate


async def plain_rate(folder: Path, messages: Sequence[NewMessage]) -> float:
    """Plain inserts of the same JSON a second, each committed before the next, on a worker thread."""
    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        db = await loop.run_in_executor(thread, plain_database, folder / "plain.db")
        begun = time.perf_counter()
        for message in messages:
            await loop.run_in_executor(thread, plain_insert, db, message)
        rate = len(messages) / (time.perf_counter() - begun)
        await loop.run_in_executor(thread, db.close)
    return rate


def plain_database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, body TEXT NOT NULL)")
    return db


def plain_insert(db: sqlite3.Connection, message: NewMessage) -> None:
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO messages (body) VALUES (?)", (json.dumps(message.body),))
    db.execute("COMMIT")


async def read_times(folder: Path) -> dict[int, float]:
    """Median seconds of one `get_session` by the number of messages in the session."""
    store = await open_sqlite(folder / "reads.db")
    times = {}
    for length in (SHORT, LONG):
        await new_session(store, str(length))
        messages = conversation(length)
        for first in range(0, length, 5_000):
            await store.append_messages(str(length), messages[first : first + 5_000], count=count)
        taken = []
        for _ in range(READS):
            begun = time.perf_counter()
            await store.get_session(str(length))
            taken.append(time.perf_counter() - begun)
        times[length] = statistics.median(taken)
    await store.close()
    return times


async def main() -> None:
    messages = conversation(MESSAGES)
    recorded, plain = [], []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            plain.append(await plain_rate(Path(folder), messages))
            recorded.append(await recording_rate(Path(folder), messages))
    ratio = statistics.median(ours / theirs for ours, theirs in zip(recorded, plain, strict=True))
    print(f"plain inserts      {statistics.median(plain):8,.0f} messages/s")
    print(f"append_messages    {statistics.median(recorded):8,.0f} messages/s")
    print(f"ratio              {ratio:8.2f}   (at least 0.50)")
    with tempfile.TemporaryDirectory() as folder:
        times = await read_times(Path(folder))
    for length, seconds in times.items():
        print(f"get_session at {length:7,} messages {seconds * 1e6:8.0f} µs")


if __name__ == "__main__":
    asyncio.run(main())
