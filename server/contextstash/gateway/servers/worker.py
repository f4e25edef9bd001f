"""Worker processes that parse large responses, so that no other call waits for them.

A thread would not suffice: parsing JSON and checking its schema hold the interpreter's lock, for 3 seconds with 16 MB
of small values.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

import anyio
import anyio.to_process

from contextstash.gateway.shortened_results import Call, Shortening, Tally, as_text, is_valid
from contextstash.json.json_text import BadJsonError, strict_value
from contextstash.mcp.lazy_stash import LazyStash
from contextstash.mcp.serve import ServeOptions, opener
from contextstash.mcp.wire.json_rpc import with_plain_names

MAX_PROCESSES = 2
"""Worker processes at a time: a second large response need not wait for the first, and memory is bounded."""

WORKER_MEMORY_BYTES = 2 * 1024 * 1024 * 1024
"""Memory limit of one worker process: twice what 8 MiB of small values take."""

MAX_SECONDS = 30.0
"""Time limit of one task of a worker process, which is ended at it: a server's schema can make a task endless.
Ten times what 8 MiB of small values take."""

NOTHING_VALID: dict[str, Any] = {"not": {}}
"""The schema used for a server whose own could not be checked in time: its structured content is never changed."""

MAX_VALUES = 50_000
"""Maximum JSON values of a response that is passed on: reading and writing that many blocks the event loop for about
100 ms."""

NOT_PASSED = (
    "The structured content has {values:,} values, and the maximum is {most:,}. All of it is archived as JSON:"
    " get_archived_output {handle} returns it, by pattern or by lines."
)


class RefusedError(Exception):
    """A response cannot be used; the message is the reason."""


class TooSlowError(RefusedError):
    """A task was ended at its time limit."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A worker's options from the gateway: the database and settings, and the options of its `Shortening`."""

    options: ServeOptions
    session_id: str | None = None
    limits: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkerResult:
    """A parsed response: the result, or the error that the server returned; the counts, and warnings to log."""

    result: dict[str, Any] | None
    error: dict[str, Any] | None = None
    tally: Tally = field(default_factory=Tally)
    warnings: tuple[str, ...] = ()


class Workers:
    """The worker processes. They start with the first large response and stop with the event loop. A task is ended
    after `max_seconds`."""

    def __init__(self, setup: Setup, max_seconds: float = MAX_SECONDS) -> None:
        self._setup = replace(setup, options=replace(setup.options, api_key=None))
        self._max_seconds = max_seconds
        self._turns = anyio.CapacityLimiter(MAX_PROCESSES)
        self._limiter = anyio.CapacityLimiter(MAX_PROCESSES)
        self._slow_schemas: set[str] = set()

    async def shortened(self, line: bytes, call: Call) -> WorkerResult:
        """The result in a line, shortened. Raises RefusedError if the line has none."""
        if call.schema is not None and call.server in self._slow_schemas:
            call = replace(call, schema=NOTHING_VALID)
        try:
            result: WorkerResult = await self._run(_shortened, line, call, self._setup)
        except TooSlowError:
            if call.schema is None or call.schema is NOTHING_VALID:
                raise
            self._slow_schemas.add(call.server)
            return await self.shortened(line, call)
        return result

    async def valid(self, value: Any, call: Call) -> bool:
        """Whether a value is valid for the output schema of the call's tool; not if that cannot be checked in time."""
        if call.schema is None:
            return True
        if call.server in self._slow_schemas:
            return False
        try:
            return bool(await self._run(is_valid, value, call.schema))
        except TooSlowError:
            self._slow_schemas.add(call.server)
            return False
        except RefusedError:
            return False

    async def parsed(self, line: bytes) -> Any:
        """The message in a line. Raises RefusedError if it is not JSON, or has more than MAX_VALUES values."""
        return await self._run(_parsed, line)

    async def _run(self, work: Any, *arguments: Any) -> Any:
        try:
            async with self._turns:  # the time limit does not include the wait for a process
                with anyio.fail_after(self._max_seconds):
                    return await anyio.to_process.run_sync(work, *arguments, cancellable=True, limiter=self._limiter)
        except TimeoutError as error:
            raise TooSlowError(f"reading it takes more than {self._max_seconds:.0f} seconds") from error
        except anyio.BrokenWorkerProcess as error:
            raise RefusedError("the process that parsed it ended") from error
        except MemoryError as error:
            raise RefusedError("parsing it needs too much memory; request less") from error


_shown: set[tuple[str, str, str]] = set()
"""The outputs that this worker process has shown, so that repeated ones are recognized."""


def _shortened(line: bytes, call: Call, setup: Setup) -> WorkerResult:
    _limit_memory()
    message = _json(line)
    if not isinstance(message, dict) or not isinstance(message.get("result"), dict):
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict):
            return WorkerResult(None, error)
        raise RefusedError("it is not valid JSON-RPC")
    return asyncio.run(_worker_result(message["result"], call, setup))


async def _worker_result(value: dict[str, Any], call: Call, setup: Setup) -> WorkerResult:
    from mcp.types import CallToolResult

    from contextstash.gateway.servers.request_relay import tool_result

    result = tool_result(value)
    if not isinstance(result, CallToolResult):
        return WorkerResult(value)
    shortening = Shortening(LazyStash(opener(setup.options)), setup.session_id, setup.limits, _shown=_shown)
    async with shortening.stash.in_use():
        shown = await shortening.result(result, call)
        structured = shown.structured_content
        values = count_of_values(structured)
        if values > MAX_VALUES:
            handle = await shortening.archive(as_text(result.structured_content), call)
            text = NOT_PASSED.format(values=values, most=MAX_VALUES, handle=handle)
            content = [{"type": "text", "text": text}]
            return WorkerResult({"content": content, "isError": True}, None, shortening.tally, shortening.warnings)
    dumped = shown.model_dump(by_alias=True, exclude_none=True, mode="json")
    return WorkerResult(dumped, None, shortening.tally, shortening.warnings)


def _parsed(line: bytes) -> Any:
    _limit_memory()
    message = _json(line)
    values = count_of_values(message)
    if values > MAX_VALUES:
        raise RefusedError(f"it has {values:,} values, and the maximum is {MAX_VALUES:,}")
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
    """Limit the memory of this process, if the system supports it."""
    try:
        import resource
    except ImportError:  # Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = WORKER_MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(hard, WORKER_MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
