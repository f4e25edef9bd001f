"""The proxy on a free port of this machine, with a clock of the test."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from contextstash.proxy.app import ProxyApp
from contextstash.proxy.engine import Engine
from contextstash.proxy.plan import ProxyOptions
from contextstash.proxy.serve import UVICORN, ServedProxy, proxy_app
from contextstash.stash import Stash
from contextstash.view.branches import path_to
from contextstash.web import serving
from contextstash_storage.records import ProxiedSession, RewindEdit
from contextstash_storage.sqlite import open_sqlite
from tests.support.caching_provider import CachingProvider

START = 1_800_000_000.0
"""When the clock of a test starts, in seconds since 1970."""


KEEP_TOKENS = 12_000
"""More than by default: half of it stays at a cold cache, the last output of `session` that a reply follows."""


@dataclass
class Clock:
    """A clock that a test sets."""

    now: float = START

    def __call__(self) -> float:
        return self.now


@dataclass
class RunningProxy:
    """Its address, its engine, the loop in which they run, and the clock and the provider of the test."""

    url: str
    database: Path
    clock: Clock
    provider: CachingProvider
    loop: asyncio.AbstractEventLoop
    app: ProxyApp
    http: httpx2.Client = field(default_factory=lambda: httpx2.Client(timeout=30.0))

    @property
    def engine(self) -> Engine:
        assert self.app.engine is not None
        return self.app.engine

    def settle(self) -> None:
        """Wait until the requests so far are recorded."""
        if self.app.engine is not None:
            asyncio.run_coroutine_threadsafe(self.engine.idle(), self.loop).result(30)

    def state(self, session_id: str) -> ProxiedSession:
        """What is stored of a session's requests."""
        return asyncio.run_coroutine_threadsafe(self._state(session_id), self.loop).result(30)

    async def _state(self, session_id: str) -> ProxiedSession:
        found = await self.engine._access.store.get_note(session_id, ProxiedSession)
        assert found is not None
        return found

    def send(self, body: dict[str, Any] | bytes, headers: dict[str, str] | None = None) -> httpx2.Response:
        """Send a request of an agent, and wait until it is recorded."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = header_of(body) if isinstance(body, dict) else {}
        headers = {**named, **(headers or {})}
        response = self.http.post(f"{self.url}/v1/messages?beta=true", content=content, headers=headers)
        self.settle()
        return response


def in_stash(path: Path, work: Callable[[Stash], Awaitable[Any]]) -> Any:
    """What `work` returns for a stash on this database, as another process opens it."""

    async def run() -> Any:
        async with Stash(await open_sqlite(path)) as stash:
            return await work(stash)

    return asyncio.run(run())


async def messages_in(database: Path) -> dict[str, list[Any]]:
    """All messages of each session, of left branches too."""
    async with Stash(await open_sqlite(database)) as stash:
        return {
            each.session_id: [message.body for message in await stash.store.read_messages(each.session_id)]
            for each in await stash.store.list_sessions(limit=1_000)
        }


def recorded(database: Path) -> dict[str, list[Any]]:
    """The same outside of an event loop."""
    return asyncio.run(messages_in(database))


def rewinds(database: Path, session_id: str) -> int:
    """How many edits hide a branch of a session."""
    edits = in_stash(database, lambda stash: stash.store.read_edits(session_id))
    return sum(isinstance(edit, RewindEdit) for edit in edits)


def conversation_in(database: Path, session_id: str) -> list[Any]:
    """The messages of a session as it goes on now, without those of branches that were left."""
    edits = in_stash(database, lambda stash: stash.store.read_edits(session_id))
    messages = recorded(database)[session_id]
    return [messages[seq] for seq in range(len(messages)) if seq in path_to(edits, len(messages) - 1)]


@contextmanager
def running_proxy(
    upstream: CachingProvider | str,
    database: Path,
    clock: Clock,
    *,
    settings: Mapping[str, Any] | None = None,
    secret: str | None = None,
    **options: Any,
) -> Iterator[RunningProxy]:
    """The proxy before this model API, with its database; with a `secret` as `contextstash run` starts it."""
    provider = CachingProvider(upstream) if isinstance(upstream, str) else upstream

    async def open_stash() -> Stash:
        return Stash(await open_sqlite(database, busy_seconds=1.0), settings=settings)

    served = ServedProxy(
        provider.url,
        ProxyOptions(**{"step_seconds": 30.0, "keep_tokens": KEEP_TOKENS, **options}),
        open_stash,
        secret=secret,
        clock=clock,
    )
    found: list[Any] = []
    ready = threading.Event()

    async def app() -> ProxyApp:
        found.extend((asyncio.get_running_loop(), made := await proxy_app(served)))
        ready.set()
        return made

    with serving(app, UVICORN, 30) as port:
        address = f"http://127.0.0.1:{port}"
        assert ready.wait(30)
        proxy = RunningProxy(f"{address}/{secret}" if secret else address, database, clock, provider, *found)
        with proxy.http:
            yield proxy


ID = "0a1b2c3d-0000-4000-8000-000000000001"
"""The session that `request_of` names."""

RETRIEVAL: dict[str, Any] = {"name": "mcp__contextstash__get_archived_output", "input_schema": {"type": "object"}}
READ: dict[str, Any] = {"name": "Read", "input_schema": {"type": "object"}}


def request_of(messages: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """The body of a request as Claude Code writes it: a breakpoint in the system prompt, one on the last message."""
    marked = [*messages[:-1], with_breakpoint(messages[-1])]
    return {
        "model": "claude-opus-4-5",
        "messages": marked,
        "system": [{"type": "text", "text": "You are an agent.", "cache_control": {"type": "ephemeral"}}],
        "tools": [READ, RETRIEVAL],
        "metadata": {"user_id": ID},
        "max_tokens": 1000,
        "stream": True,
        **fields,
    }


def header_of(body: dict[str, Any]) -> dict[str, str]:
    """The header in which Claude Code names the conversation of a request, as in its metadata."""
    return {"x-claude-code-session-id": body["metadata"]["user_id"]} if body.get("metadata") else {}


def with_breakpoint(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose last block ends the cache."""
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    parts[-1] = {**parts[-1], "cache_control": {"type": "ephemeral"}}
    return {**message, "content": parts}


def turn(number: int, text: str, tool: str = "Read", argument: str | None = None) -> list[dict[str, Any]]:
    """A tool call and its result."""
    call = {
        "type": "tool_use",
        "id": f"toolu_{number}",
        "name": tool,
        "input": {"file_path": argument or f"/a/{number}"},
    }
    return [
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}]},
    ]


def session(turns: int, size: int = 8_000) -> list[dict[str, Any]]:
    """A conversation with so many outputs of `size` characters, all different."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Fix the bug."}]
    for number in range(turns):
        messages += turn(number, "".join(f'line {number}-{k}: äöü "quoted"\n' for k in range(size // 28)))
    return messages


OLD = [f"toolu_{number}" for number in range(6)]
"""The calls of `session(8)` whose outputs leave if the cache is cold: those older than the newest 6,000 tokens of what
the model has replied to."""


def play(proxy: RunningProxy, messages: list[dict[str, Any]], first: int = 1, **fields: Any) -> None:
    """Send the requests of a conversation, ten seconds apart."""
    for count in range(first, len(messages) + 1, 2):
        proxy.clock.now += 10
        proxy.send(request_of(messages[:count], **fields))


def placeholders(body: dict[str, Any]) -> list[str]:
    """The ids of the calls whose outputs are sent as placeholders."""
    return [
        block["tool_use_id"]
        for message in body["messages"]
        for block in (message["content"] if isinstance(message["content"], list) else [])
        if block["type"] == "tool_result" and "get_archived_output" in json.dumps(block["content"])
    ]


def prune_cold(proxy: RunningProxy, messages: list[dict[str, Any]], **fields: Any) -> None:
    """Send the requests of a conversation, the last one so late that the cache is cold and old outputs leave."""
    play(proxy, messages[:-2], **fields)
    proxy.clock.now += 400
    play(proxy, messages, first=len(messages), **fields)
