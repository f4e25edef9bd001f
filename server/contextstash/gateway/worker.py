"""Large answers taken apart in processes of their own, so that no other call waits for it.

A thread would not do: parsing JSON and checking its schema hold the interpreter's lock, for 3 seconds at 16 MB of small
values.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_process

from contextstash.gateway.output_limits import Call, Shortening, Tally
from contextstash.gateway.structured import as_text
from contextstash.json_text import BadJsonError, strict_value
from contextstash.mcp.json_rpc import with_plain_names
from contextstash.mcp.lazy import LazyStash
from contextstash.mcp.serve import ServeOptions, opener

PROCESSES = 2
"""Worker processes at a time: a second large answer need not wait for the first, and memory has a bound."""

WORKER_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Of one worker process: twice what 8 MiB of small values take."""

MAX_VALUES = 50_000
"""JSON values of an answer that is passed on: reading and writing that many takes the event loop some 100 ms."""

NOT_PASSED = (
    "The answer has {values:,} values in its structured content, and at most {most:,} are passed on. All of it is"
    " archived as JSON: get_archived_output {handle} reads it, by pattern or by lines."
)


class RefusedError(Exception):
    """An answer that cannot be used, with the reason."""


@dataclass(frozen=True, slots=True)
class Setup:
    """What a worker needs to know of the gateway: the database and settings, and the gateway's `Shortening`."""

    options: ServeOptions
    session_id: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of an answer: a result, or the error that the server answered with; what was counted, and what is
    to be logged."""

    result: dict[str, Any] | None
    error: dict[str, Any] | None = None
    tally: Tally = field(default_factory=Tally)
    warnings: tuple[str, ...] = ()


class Workers:
    """The processes. They start at the first large answer, and end with the event loop."""

    def __init__(self, setup: Setup) -> None:
        self._setup = replace(setup, options=replace(setup.options, api_key=None))
        self._limiter = anyio.CapacityLimiter(PROCESSES)

    async def shortened(self, line: bytes, call: Call) -> Taken:
        """The result in a line, made short. Raises RefusedError if there is none."""
        taken: Taken = await self._run(_shortened, line, call, self._setup)
        return taken

    async def parsed(self, line: bytes) -> Any:
        """The message in a line. Raises RefusedError if it is no JSON, or has more than MAX_VALUES values."""
        return await self._run(_parsed, line)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        try:
            return await anyio.to_process.run_sync(work, *arguments, cancellable=True, limiter=self._limiter)
        except anyio.BrokenWorkerProcess as error:
            raise RefusedError("the process that was to read it ended") from error
        except MemoryError as error:
            raise RefusedError("to read it takes too much memory; ask for less") from error


_shown: dict[tuple[str, str, str], str] = {}
"""Of a worker: the handles of the outputs that were shown, for those that are repeated."""


def _shortened(line: bytes, call: Call, setup: Setup) -> Taken:
    _limit_memory()
    message = _json(line)
    if not isinstance(message, dict) or not isinstance(message.get("result"), dict):
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict):
            return Taken(None, error)
        raise RefusedError("it is not valid JSON-RPC")
    return asyncio.run(_taken(message["result"], call, setup))


async def _taken(value: dict[str, Any], call: Call, setup: Setup) -> Taken:
    from mcp.types import CallToolResult

    from contextstash.gateway.request_relay import tool_result

    result = tool_result(value)
    if not isinstance(result, CallToolResult):
        return Taken(value)
    shortening = Shortening(LazyStash(opener(setup.options)), setup.session_id, setup.limits, _shown=_shown)
    async with shortening.stash.in_use():
        shown = await shortening.result(result, call)
        structured = shown.structured_content
        values = count_of_values(structured)
        if values > MAX_VALUES:
            handle = await shortening.kept(as_text(result.structured_content), call)
            text = NOT_PASSED.format(values=values, most=MAX_VALUES, handle=handle)
            content = [{"type": "text", "text": text}]
            return Taken({"content": content, "isError": True}, None, shortening.tally, shortening.warnings)
    dumped = shown.model_dump(by_alias=True, exclude_none=True, mode="json")
    return Taken(dumped, None, shortening.tally, shortening.warnings)


def _parsed(line: bytes) -> Any:
    _limit_memory()
    message = _json(line)
    values = count_of_values(message)
    if values > MAX_VALUES:
        raise RefusedError(f"it has {values:,} values, and at most {MAX_VALUES:,} are taken")
    return message


def count_of_values(value: Any) -> int:
    """The number of JSON values in a value, including itself."""
    count, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        count += 1
        if isinstance(each, dict):
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return count


def _json(line: bytes) -> Any:
    try:
        return with_plain_names(strict_value(line))
    except BadJsonError as error:
        raise RefusedError(str(error).rstrip(".")) from error


def _limit_memory() -> None:
    """Ask the system to refuse more memory than a worker may have, if it can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = WORKER_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, WORKER_MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
