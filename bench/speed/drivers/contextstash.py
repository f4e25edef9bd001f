"""contextstash: records a conversation durably, gets the list to send, and the next one; searches the outputs."""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

# A script's own folder comes first in the search path, and this script has the package's name.
sys.path = [entry for entry in sys.path if entry != str(Path(__file__).parent)]

from contextstash.service.stash import Stash  # noqa: E402
from contextstash_storage.sqlite.store import open_sqlite  # noqa: E402

SETTINGS = {"preset": "default", "automatic": False, "window": 200_000}
MILLISECONDS = 1_000


async def main(messages: list[dict[str, Any]], queries: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stash = Stash(await open_sqlite(Path(folder) / "db"), settings=SETTINGS)
        await stash.record_messages(messages[:2], session_id="warm", format="openai-chat")
        recording = await timed(
            stash.record_messages(messages[:-2], session_id="one", format="openai-chat", model="gpt-5")
        )
        first = await timed(stash.get_context("one"))
        await stash.record_messages(messages[-2:], session_id="one")
        following = await timed(stash.get_context("one"))
        searches = [await timed(stash.search_history(query, session_id="one")) for query in queries]
        await stash.close()
    figures = {
        "fit a list into the window": first,
        "the same after one more turn": following,
        "store and index the conversation": recording,
        "search it, median": statistics.median(searches),
    }
    print(json.dumps(figures))


async def timed(work: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * MILLISECONDS


given = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()]
asyncio.run(main(given, json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))))
