"""Small batches: each is one transaction, whatever other processes do and however slow the machine is."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from contextstash_storage.sqlite.store import SqliteStore
from tests.storage.conftest import Opener
from tests.support import batch_recorder
from tests.support.batch_recorder import MESSAGES, record_batches
from tests.support.effort import THOROUGH
from tests.support.stored_sessions import bodies, new_session

BATCHES = 2_000 if THOROUGH else 100
"""Of each process."""

STOP_SECONDS = 0.08
"""How long a process is stopped: longer than a transaction takes, so that a clock would end it early."""

MAX_RUN_SECONDS = 0.01
"""How long it runs between two stops: a few batches."""

LIMIT_SECONDS = 600.0
"""How long the test may take."""

ROOT = Path(__file__).parents[2]


def batches_in_order(found: Sequence[Any]) -> list[str]:
    """The batch of each message."""
    return [body.get("tool_call_id") or body.get("content") or body["tool_calls"][0]["id"] for body in found]


def assert_unbroken(names: Sequence[str], batches: int) -> None:
    """Each batch stands in one run, and all are there."""
    runs = [names[place : place + MESSAGES] for place in range(0, len(names), MESSAGES)]
    assert [run for run in runs if len(set(run)) != 1] == []
    assert len({run[0] for run in runs}) == len(runs) == batches


@pytest.mark.skipif(sys.platform == "win32", reason="processes cannot be stopped there")
@pytest.mark.processes
async def test_no_batch_of_two_processes_is_split_even_if_they_are_stopped_in_the_middle(
    path: Path, store: SqliteStore
) -> None:
    recorders = [_recording(path, name) for name in ("one", "two")]
    try:
        await asyncio.to_thread(_stop_now_and_then, recorders)
    finally:
        for recorder in recorders:
            recorder.kill()
            recorder.wait()
    assert_unbroken(batches_in_order(await bodies(store)), 2 * BATCHES)


def _recording(path: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", batch_recorder.__name__, str(path), name, str(BATCHES)], cwd=ROOT)


def _stop_now_and_then(recorders: Sequence[subprocess.Popen[bytes]]) -> None:
    """Stop one of them for a moment, again and again, until all have ended."""
    rng = random.Random(7)
    end = time.monotonic() + LIMIT_SECONDS
    while running := [recorder for recorder in recorders if recorder.poll() is None]:
        assert time.monotonic() < end
        stopped = rng.choice(running)
        with suppress(ProcessLookupError):
            os.kill(stopped.pid, signal.SIGSTOP)
            time.sleep(STOP_SECONDS)
            os.kill(stopped.pid, signal.SIGCONT)
        time.sleep(rng.uniform(0, MAX_RUN_SECONDS))
    assert [recorder.returncode for recorder in recorders] == [0, 0]


async def test_no_batch_of_two_programs_is_split_in_any_store(open_store: Opener) -> None:
    one, two = await open_store(), await open_store()
    await new_session(one)
    await asyncio.gather(record_batches(one, "one", BATCHES), record_batches(two, "two", BATCHES))
    assert_unbroken(batches_in_order(await bodies(one)), 2 * BATCHES)
