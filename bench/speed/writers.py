"""Several processes that write single messages to one file at the same time, and how long each write takes."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .database import opened

WRITERS, MESSAGES = 8, 500

MILLISECONDS = 1_000


def waits(folder: Path) -> dict[str, float]:
    """Milliseconds that a write took while the others wrote: the median, the 99th percentile and the longest of all."""
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "shared.db"
        asyncio.run(_write(path, "first", 1))
        command = [sys.executable, "-m", "bench.speed", "--write", str(path)]
        commands = [[*command, f"writer-{each}"] for each in range(WRITERS)]
        running = [subprocess.Popen(each, stdout=subprocess.PIPE, text=True) for each in commands]
        taken = sorted(seconds for process in running for seconds in json.loads(process.communicate()[0]))
    return {
        f"{WRITERS} writers: median": taken[len(taken) // 2] * MILLISECONDS,
        f"{WRITERS} writers: p99": taken[int(0.99 * len(taken))] * MILLISECONDS,
        f"{WRITERS} writers: longest": taken[-1] * MILLISECONDS,
    }


def write(path: Path, session_id: str) -> None:
    """Write as one of the processes; prints the seconds of each message."""
    print(json.dumps(asyncio.run(_write(path, session_id, MESSAGES))))


async def _write(path: Path, session_id: str, count: int) -> list[float]:
    taken = []
    async with opened(path) as stash:
        for number in range(count):
            message = {"role": "user", "content": f"Message {number} of {session_id}, as long as a short request is."}
            begun = time.perf_counter()
            await stash.record_messages([message], session_id=session_id, format="openai-chat")
            taken.append(time.perf_counter() - begun)
    return taken[1:] or taken
