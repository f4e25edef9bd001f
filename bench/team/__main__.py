"""Runs a team's load on two servers and one PostgreSQL, with a killed server and a crash of PostgreSQL on the way.

    python -m bench.team [--seconds 300] [--sessions 200] [--owners 20] [--pause 8] [--json FILE]

After a third of the time one server is killed (SIGKILL) and started again 10 s later; after two thirds PostgreSQL is
ended as by a crash and restarted. At the end each session is read from the database: it must hold exactly the messages
that were acknowledged, each once, in order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from contextstash.web.access_tokens import create_token
from contextstash_storage.databases import location_of, open_store

from .load import Agent, Call, Load
from .processes import Postgres, Server, postgres

SETTINGS = ("window=12000",)
"""A small window, so that the sessions are pruned and compacted within minutes."""

AWAY_SECONDS = 10.0
"""For how long the killed server stays away."""

SETTLED_SECONDS = 20.0
"""After a fault, the calls of this time are not counted as those of calm operation."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--owners", type=int, default=20)
    parser.add_argument("--pause", type=float, default=8, help="seconds between an agent's turns, on average")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as folder, postgres(Path(folder)) as database:
        figures = asyncio.run(_run(database, arguments))
    print(json.dumps(figures, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


async def _run(database: Postgres, arguments: argparse.Namespace) -> dict[str, Any]:
    location = location_of(database.address)
    store = await open_store(location)
    owners = [f"owner-{number:03}" for number in range(arguments.owners)]
    tokens = [await create_token(store.tokens, owner, owner, ("read", "write")) for owner in owners]
    await store.close()
    servers = [Server(database.address, *SETTINGS) for _ in range(2)]
    began = time.monotonic()
    load = Load([server.url for server in servers], began + arguments.seconds, arguments.pause)
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(limits=limits) as client:
        agents = [Agent(load, client, number, tokens[number % len(tokens)]) for number in range(arguments.sessions)]
        faults = asyncio.create_task(_faults(database, servers, arguments.seconds))
        await asyncio.gather(*(agent.run() for agent in agents))
        happened = await faults
    lasted = time.monotonic() - began
    memory = [round(server.megabytes()) for server in servers]
    ended = [server.stop() for server in servers]
    figures = _figures(load.calls, began, lasted, happened)
    figures["failed_attempts"] = dict(load.failures)
    figures["servers"] = {
        "processor_seconds": [round(server.processor_seconds(), 1) for server in servers],
        "megabytes": memory,
        "seconds_to_stop": [round(each, 2) for each in ended],
        "exit_codes": [server.exit_code for server in servers],
    }
    figures["postgres_processor_seconds"] = round(happened["postgres_before"] + database.processor_seconds(), 1)
    figures |= await _verified(database, agents, owners)
    return figures


async def _faults(database: Postgres, servers: Sequence[Server], seconds: float) -> dict[str, float]:
    """Kill a server, bring it back, and crash PostgreSQL; when that was."""
    await asyncio.sleep(seconds / 3)
    killed = time.monotonic()
    servers[0].kill()
    await asyncio.sleep(min(AWAY_SECONDS, seconds / 6))
    await asyncio.to_thread(servers[0].start)
    await asyncio.sleep(max(0.0, killed + seconds / 3 - time.monotonic()))
    before = database.processor_seconds()
    crashed = time.monotonic()
    took = await asyncio.to_thread(database.crash_and_restart)
    return {"killed": killed, "crashed": crashed, "restart_seconds": took, "postgres_before": before}


def _figures(calls: Sequence[Call], began: float, lasted: float, happened: dict[str, float]) -> dict[str, Any]:
    faults = (happened["killed"], happened["crashed"])
    calm = [call for call in calls if not any(at - call.seconds <= call.began <= at + SETTLED_SECONDS for at in faults)]
    killed, crashed = faults
    phases = {
        "until_the_kill": (began, killed),
        "one_server": (killed, killed + AWAY_SECONDS),
        "until_the_crash": (killed + SETTLED_SECONDS, crashed),
        "the_crash": (crashed - SETTLED_SECONDS / 20, crashed + SETTLED_SECONDS),
        "until_the_end": (crashed + SETTLED_SECONDS, began + lasted),
    }
    tools = sorted({call.tool for call in calls})
    return {
        "seconds": round(lasted, 1),
        "calls": len(calls),
        "calls_a_second": round(len(calls) / lasted, 1),
        "sent_again": sum(call.tries > 1 for call in calls),
        "all": _percentiles(calls),
        "calm": _percentiles(calm),
        "phases": {
            name: _percentiles([call for call in calls if first <= call.began < last])
            for name, (first, last) in phases.items()
        },
        "calm_by_tool": {tool: _percentiles([call for call in calm if call.tool == tool]) for tool in tools},
        "killed_after": round(happened["killed"] - began, 1),
        "crashed_after": round(happened["crashed"] - began, 1),
        "postgres_restart_seconds": round(happened["restart_seconds"], 2),
    }


def _percentiles(calls: Sequence[Call]) -> dict[str, float]:
    """Milliseconds until the answer, with all attempts."""
    taken = sorted(1_000 * call.seconds for call in calls)
    if len(taken) < 2:
        return {"calls": len(taken)}
    cuts = statistics.quantiles(taken, n=100, method="inclusive")
    named = {"p50": cuts[49], "p95": cuts[94], "p99": cuts[98], "max": taken[-1]}
    return {"calls": len(taken), **{name: round(value, 1) for name, value in named.items()}}


async def _verified(database: Postgres, agents: Sequence[Agent], owners: Sequence[str]) -> dict[str, Any]:
    """Compare what is stored with what was acknowledged."""
    store = await open_store(location_of(database.address))
    lost = doubled = stored = events = 0
    try:
        for number, agent in enumerate(agents):
            owned = store.for_owner(owners[number % len(owners)])
            found = [message.body for message in await owned.read_messages(agent.session)]
            stored += len(found)
            lost += sum(message not in found for message in agent.acknowledged)
            doubled += len(found) - len({json.dumps(body) for body in found})
            assert found == agent.acknowledged, (agent.session, len(found), len(agent.acknowledged))
            events += len(await owned.last_events(agent.session, ("prune", "compaction"), 1_000))
    finally:
        await store.close()
    size, logged = await _sizes(database)
    return {
        "messages": stored,
        "lost": lost,
        "doubled": doubled,
        "prunes_and_compactions": events,
        "database_bytes": size,
        "bytes_a_message": round(size / max(1, stored)),
        "logged_bytes_a_message": round(logged / max(1, stored)),
    }


async def _sizes(database: Postgres) -> tuple[int, int]:
    """The bytes of the database, and those written to its write-ahead log since it was made."""
    import asyncpg

    connection = await asyncpg.connect(database.address.split("&pool_size")[0])
    try:
        size = await connection.fetchval("SELECT pg_database_size(current_database())")
        return int(size), int(await connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')"))
    finally:
        await connection.close()


if __name__ == "__main__":
    main()
