"""One process's measurements on a session of N messages."""

from __future__ import annotations

import asyncio
import resource
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import anyio

from contextstash.stash import Stash

from .conversation import further, queries
from .database import OTHER, SESSION, copied, opened

Result = TypeVar("Result")

Database = Path | str
"""A file, or an address of PostgreSQL."""

REPEATS = 15
"""How often a quick operation is measured; the median counts."""

SEARCHES = 60

PROBE_SECONDS = 0.005
"""Pause between two of the other calls that are made during a prune or compaction."""

MILLISECONDS = 1_000
MEGABYTE = 1_000_000


async def measure(database: Database, folder: Path, only: frozenset[str] = frozenset()) -> dict[str, float]:
    """Every figure for the database: milliseconds, or megabytes where the name says so."""
    found: dict[str, float] = {}
    for name, part in _PARTS.items():
        if not only or name in only:
            found |= await part(database, folder)
    unit = 1 if sys.platform == "darwin" else 1_024
    found["peak memory, MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / MEGABYTE
    return found


async def _turns(database: Database, folder: Path) -> dict[str, float]:
    async with copied(database, folder) as stash:
        await _warmed(stash)
        recorded = [await _seconds(lambda n=n: _record(stash, n)) for n in range(REPEATS)]  # type: ignore[misc]
        estimated = [await _seconds(lambda: stash.estimate_context(SESSION)) for _ in range(REPEATS)]
        first = await _seconds(lambda: stash.get_context(SESSION))
        views = await _views(stash, REPEATS)
    return {
        "record 1": _median(recorded),
        "estimate": _median(estimated),
        "first view": first * MILLISECONDS,
        "view, nothing compacted": _median(views),
    }


async def _prune(database: Database, folder: Path) -> dict[str, float]:
    async with copied(database, folder) as stash:
        await _warmed(stash)
        alone = await _seconds(lambda: stash.prune_tool_outputs(SESSION))
    async with copied(database, folder) as stash:
        await _warmed(stash)
        seconds, stall = await _while_probed(stash, lambda: stash.prune_tool_outputs(SESSION))
    return {
        "prune": alone * MILLISECONDS,
        "prune, while two others call": seconds * MILLISECONDS,
        "longest stall, prune": stall * MILLISECONDS,
    }


async def _compact(database: Database, folder: Path) -> dict[str, float]:
    async with copied(database, folder) as stash:
        await _warmed(stash)
        seconds, stall = await _while_probed(stash, lambda: stash.compact_session(SESSION))
        views = await _views(stash, REPEATS)
    return {
        "compact": seconds * MILLISECONDS,
        "longest stall, compact": stall * MILLISECONDS,
        "view after compaction": _median(views[1:]),
    }


async def _search(database: Database, folder: Path) -> dict[str, float]:
    async with opened(database) as stash:
        wanted = queries(SEARCHES)
        await stash.search_history(wanted[0], session_id=SESSION)
        taken = [await _seconds(lambda q=q: stash.search_history(q, session_id=SESSION)) for q in wanted]  # type: ignore[misc]
    ordered = sorted(taken)
    return {"search p50": _median(taken), "search p95": ordered[int(0.95 * len(ordered))] * MILLISECONDS}


_PARTS: dict[str, Callable[[Database, Path], Awaitable[dict[str, float]]]] = {
    "turns": _turns,
    "prune": _prune,
    "compact": _compact,
    "search": _search,
}
PARTS = tuple(_PARTS)


async def _warmed(stash: Stash) -> None:
    """Load the vocabulary and what else is loaded at the first use, or by a server at its start."""
    with anyio.CancelScope():  # loads 29 modules, which the MCP SDK has loaded in a server
        await stash.record_messages(further(REPEATS), session_id=OTHER, first_seq=None)
    await stash.get_context(OTHER)


async def _record(stash: Stash, number: int) -> None:
    await stash.record_messages(further(number)[number % 2 : number % 2 + 1], session_id=OTHER)


async def _views(stash: Stash, count: int) -> list[float]:
    """Views, each after a new call and its result."""
    taken = []
    for number in range(count):
        await stash.record_messages(further(100 + number), session_id=SESSION)
        taken.append(await _seconds(lambda: stash.get_context(SESSION)))
    return taken


async def _while_probed(stash: Stash, work: Callable[[], Awaitable[object]]) -> tuple[float, float]:
    """How long the work takes, and the longest wait of other calls to the same process meanwhile."""
    ended = asyncio.Event()
    probes = [asyncio.create_task(_probe(ended, call)) for call in (_estimating(stash), _recording(stash))]
    await asyncio.sleep(10 * PROBE_SECONDS)
    seconds = await _seconds(work)
    ended.set()
    return seconds, max(await asyncio.gather(*probes))


def _estimating(stash: Stash) -> Callable[[], Awaitable[object]]:
    return lambda: stash.estimate_context(OTHER)


def _recording(stash: Stash) -> Callable[[], Awaitable[object]]:
    return lambda: stash.record_messages([{"role": "user", "content": "Go on."}], session_id=OTHER)


async def _probe(ended: asyncio.Event, call: Callable[[], Awaitable[object]]) -> float:
    longest = 0.0
    while not ended.is_set():
        begun = time.perf_counter()
        await asyncio.sleep(PROBE_SECONDS)
        await call()
        longest = max(longest, time.perf_counter() - begun - PROBE_SECONDS)
    return longest


async def _seconds(work: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await work()
    return time.perf_counter() - begun


def _median(seconds: list[float]) -> float:
    return statistics.median(seconds) * MILLISECONDS
