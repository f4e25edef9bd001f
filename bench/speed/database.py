"""Databases with a session of N messages, each built once through the service and kept for later runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from contextstash.configuration.database import open_database
from contextstash.stash import Stash
from contextstash_storage.databases import location_of
from contextstash_storage.records import to_bytes

from .conversation import messages
from .postgresql import copy_of

SESSION, OTHER = "long", "other"
"""The measured session, and a short one whose calls are made while the long one is reduced."""

MODEL = "claude-sonnet-4-5"
SETTINGS = {
    "preset": "default",
    "automatic": False,
    "window": 200_000,
    "secrets": os.environ.get("CONTEXTSTASH_SECRETS", "mask"),
}
"""With CONTEXTSTASH_ENCRYPTION_KEY the databases are encrypted too, so that both can be compared with a plain run."""

BATCH = 1_000
"""Messages recorded by one call."""


@asynccontextmanager
async def opened(database: Path | str) -> AsyncIterator[Stash]:
    """The service on a database: a file, or an address of PostgreSQL."""
    stash = Stash(await open_database(location_of(str(database))), settings=SETTINGS)
    try:
        yield stash
    finally:
        await stash.close()


def built(folder: Path, count: int) -> Path:
    """The database with `count` messages; it is built if it is not there yet."""
    path = folder / f"speed-{count}.db"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part")
        unfinished.unlink(missing_ok=True)
        rate = asyncio.run(build(unfinished, count))
        unfinished.rename(path)
        path.with_suffix(".rate").write_text(f"{rate:.0f}\n", encoding="utf-8")
    return path


def build_rate(path: Path) -> float:
    """Messages a second at which this database was recorded in batches."""
    return float(path.with_suffix(".rate").read_text(encoding="utf-8"))


@asynccontextmanager
async def copied(database: Path | str, folder: Path) -> AsyncIterator[Stash]:
    """The service on a copy of the database, so that the next operation finds it unchanged."""
    if isinstance(database, str):
        async with copy_of(database) as address, opened(address) as stash:
            yield stash
        return
    copy = folder / "copy.db"
    shutil.copyfile(database, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())  # else the first commits wait until all of the copy is on the disk
    try:
        async with opened(copy) as stash:
            yield stash
    finally:
        copy.unlink()


def compressed_size(count: int) -> int:
    """Bytes of the messages as compact JSON, each compressed alone: what a plain store of them takes."""
    return sum(len(zlib.compress(to_bytes(message), 6)) for message in messages(count))


async def build(database: Path | str, count: int) -> float:
    """Record the sessions in an empty database; returns the messages a second."""
    async with opened(database) as stash:
        begun = time.perf_counter()
        source: Iterator[dict[str, object]] = messages(count)
        while batch := list(islice(source, BATCH)):
            await stash.record_messages(batch, session_id=SESSION, model=MODEL, format="openai-chat")
        seconds = time.perf_counter() - begun
        await stash.record_messages(list(messages(4)), session_id=OTHER, model=MODEL, format="openai-chat")
    return count / seconds
