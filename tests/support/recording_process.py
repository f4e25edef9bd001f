"""A process that records messages into a session one by one and prints each position once it is acknowledged.

Run as `python recording_process.py DATABASE SESSION COUNT`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from contextstash_storage.sqlite import open_sqlite
from tests.support.stored_sessions import new_session, record, says


async def main(path: str, session_id: str, number: int) -> None:
    async with await open_sqlite(Path(path)) as store:
        await new_session(store, session_id)
        name = f"{session_id} {id(store)}"
        for place in range(number):
            appended = await record(store, says(f"{name} {place} " + "word " * 300), session_id=session_id)
            print(appended.messages[0].seq, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
