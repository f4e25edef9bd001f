"""A process that records batches of four small messages. Run as `python batch_recorder.py DATABASE NAME BATCHES`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contextstash_storage.sqlite.store import open_sqlite
from contextstash_storage.store import SessionStore
from tests.support.stored_sessions import answers, calls, new_session, record, says

MESSAGES = 4
"""Of each batch."""


async def record_batches(store: SessionStore, name: str, batches: int) -> None:
    """Record batches whose messages all hold the name of their batch, which is its id."""
    for place in range(batches):
        batch = f"{name}-{place}"
        await record(store, says(batch), calls(batch), answers(batch), says(batch, role="assistant"), batch_id=batch)


async def main(path: str, name: str, batches: int) -> None:
    store = await open_sqlite(Path(path))
    await new_session(store)
    await record_batches(store, name, batches)
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
