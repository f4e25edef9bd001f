"""Measures a turn of an agent loop at 200,000 tokens: over stdio by two tools and by one, and in the program's own
process.

A turn is what contextstash adds to a model call: record what is new, get the list to send, record the reply.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from contextstash import open_stash

WINDOW = 400_000
OPENING_TURNS = 130
TURNS = 40
ROUNDS = 3
OUTPUT_LINES = 100
MODEL = "gpt-5.4"
SYSTEM = "You read logs, part by part."

Turn = Callable[[list[dict[str, Any]], dict[str, Any]], Awaitable[int]]
"""Does one turn with the messages so far, the last of which is new, and the reply; returns the bytes sent and received
over the protocol."""


def call(number: int) -> dict[str, Any]:
    function = {"name": "read_part", "arguments": json.dumps({"n": number})}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def result(number: int) -> dict[str, Any]:
    """About 1,500 tokens."""
    lines = (f"{number}:{line} GET /loans/{line * number % 97} 200" for line in range(OUTPUT_LINES))
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": "\n".join(lines)}


def opening() -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Why do loans fail?"}]
    for number in range(OPENING_TURNS):
        messages += [call(number), result(number)]
    return messages


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": tokens, "completion_tokens": 30, "total_tokens": tokens + 30}


@asynccontextmanager
async def stdio(folder: Path) -> AsyncIterator[Client]:
    command = [
        "-m",
        "contextstash",
        "serve",
        "--tools",
        "all",
        "--db",
        str(folder / "s.db"),
        "--set",
        f"window={WINDOW}",
    ]
    async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
        yield client


def two_tools(client: Client) -> Turn:
    """`record_messages` for what is new, then `get_context`."""
    known = 0

    async def turn(messages: list[dict[str, Any]], reply: dict[str, Any]) -> int:
        nonlocal known
        new = {
            "session_id": "two",
            "messages": messages[known:],
            "first_seq": known,
            "model": MODEL,
            "format": "openai-chat",
        }
        await client.call_tool("record_messages", new)
        found = (
            await client.call_tool("get_context", {"session_id": "two", "system": SYSTEM})
        ).structured_content or {}
        said = {"session_id": "two", "messages": [reply], "usage": usage(found["tokens"])}
        recorded = (await client.call_tool("record_messages", said)).structured_content or {}
        known = recorded["next_seq"]
        return len(json.dumps([new, found, said, recorded]))

    return turn


def one_tool(client: Client) -> Turn:
    """`get_context` with the whole list and the usage of the reply before."""
    last: dict[str, Any] = {}

    async def turn(messages: list[dict[str, Any]], reply: dict[str, Any]) -> int:
        asked = {"session_id": "one", "messages": messages, "system": SYSTEM, "model": MODEL, **last}
        found = (await client.call_tool("get_context", asked)).structured_content or {}
        last["usage"] = usage(found["tokens"])
        return len(json.dumps([asked, found]))

    return turn


@asynccontextmanager
async def in_process(folder: Path) -> AsyncIterator[Turn]:
    async with open_stash(folder / "s.db") as stash:
        session = stash.session("own", model=MODEL, window=WINDOW)

        async def turn(messages: list[dict[str, Any]], reply: dict[str, Any]) -> int:
            request = await session.request(messages, system=SYSTEM)
            await session.reply(reply, usage=usage(request.tokens))
            return 0

        yield turn


async def measure(turn: Turn) -> tuple[float, int]:
    """The median milliseconds of a turn, and the bytes of the last one."""
    messages = opening()
    times, size = [], 0
    for number in range(OPENING_TURNS, OPENING_TURNS + TURNS):
        reply = call(number)
        started = time.perf_counter()
        size = await turn(messages, reply)
        times.append((time.perf_counter() - started) * 1_000)
        messages += [reply, result(number)]
    return statistics.median(times[1:]), size


async def main() -> None:
    rows: dict[str, list[tuple[float, int]]] = {}
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            async with stdio(Path(folder)) as client:
                rows.setdefault("stdio, record_messages and get_context", []).append(await measure(two_tools(client)))
                rows.setdefault("stdio, get_context alone", []).append(await measure(one_tool(client)))
            async with in_process(Path(folder)) as turn:
                rows.setdefault("in process, open_stash", []).append(await measure(turn))
    for name, found in rows.items():
        print(f"{name:40} {statistics.median(time for time, _ in found):6.1f} ms  {found[-1][1] / 1_000:6.0f} kB")


if __name__ == "__main__":
    asyncio.run(main())
