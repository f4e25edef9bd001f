"""The proxy on a free port, before a model API on loopback that models the prompt cache; with one clock for both.

A request's blocks are hashed from the start on; each breakpoint stores the hash up to it, and a later request reads the
longest stored one within 20 blocks before one of its own breakpoints, if that was used within its time to live.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2

from contextstash.proxy.app import UVICORN, ProxyApp, proxy_app
from contextstash.proxy.edits import ProxyOptions
from contextstash.proxy.engine import Engine
from contextstash.stash import Stash
from contextstash.view.view import path_to
from contextstash.web import serving
from contextstash_storage.records import ProxiedSession, RewindEdit
from contextstash_storage.sqlite import open_sqlite
from tests.support.provider import EVENTS, REPLIES, Asked, Said, Sent, anthropic_events, event_bytes, refused, served

LOOK_BACK = 20
"""Blocks before a breakpoint in which an earlier request's end is searched (Anthropic's page on prompt caching)."""

CHARACTERS_PER_TOKEN = 3.4


@dataclass
class Refusal:
    """An answer to one request in place of a reply; `when` says to which."""

    status: int
    message: str
    when: Callable[[dict[str, Any]], bool] = lambda body: True
    times: int = 1
    kind: str = "application/json"


@dataclass
class CachingProvider:
    """The running provider. `usage` holds the usage of each reply; `responses_events` makes the stream for a request of
    the Responses API. `weights` are the tokens of texts, if they are not to be counted by their length. The stream of
    request number `pause_at` stops in its middle until `resumed` is set. `raw_answer` is the status, content type and
    body of every answer."""

    url: str = ""
    clock: Callable[[], float] = lambda: 0.0
    window: int | None = None
    asked: list[Asked] = field(default_factory=list)
    usage: list[dict[str, int]] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    stored: dict[str, tuple[float, float]] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)
    reply: str = "Done."
    broken_stream: bool = False
    pause_at: int | None = None
    resumed: threading.Event = field(default_factory=threading.Event)
    raw_answer: tuple[int, str, bytes] | None = None
    responses_events: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [each.body for each in self.asked if each.path == MESSAGES]

    def say(self, asked: Asked) -> Sent:
        """The answer to a request."""
        self.asked.append(asked)
        if asked.method != "POST":
            return self._sent({"data": ["model"]})
        if asked.path.endswith("/responses") and self.responses_events is not None:
            return Sent(200, map(event_bytes, self.responses_events(asked.body)), kind=EVENTS)
        if asked.path != MESSAGES:
            return self._sent({"input_tokens": 12, "echo": len(asked.data)})
        if self.raw_answer is not None:
            status, kind, body = self.raw_answer
            return self._sent(body, status, kind)
        refusal = next((each for each in self.refusals if each.times > 0 and each.when(asked.body)), None)
        if refusal is not None:
            refusal.times -= 1
            error = "rate_limit_error" if refusal.status == 429 else "invalid_request_error"
            return self._sent(refused("anthropic", refusal.message, error=error).body, refusal.status, refusal.kind)
        usage = self.count(asked.body, int(asked.headers.get("x-hidden-tokens") or 0))
        prompt = sum(usage.values()) - usage["output_tokens"]
        if self.window is not None and prompt > self.window:
            message = f"prompt is too long: {prompt} tokens > {self.window} maximum"
            return self._sent(refused("anthropic", message).body, 400)
        self.usage.append(usage)
        reply = {**REPLIES["anthropic"]("model", Said(self.reply)), "usage": self.split(asked.body, usage)}
        return Sent(200, self._stream(reply), kind=EVENTS) if asked.body.get("stream") else self._sent(reply)

    def _sent(self, body: Any, status: int = 200, kind: str = "application/json") -> Sent:
        return Sent(status, body, {"set-cookie": "secret=cookie", "request-id": "req_1"}, kind)

    def _stream(self, reply: dict[str, Any]) -> Iterator[bytes]:
        for event in anthropic_events(reply):
            yield event_bytes(event)
            if event["type"] == "content_block_delta":
                if len(self.asked) == self.pause_at:
                    self.resumed.wait(30)
                if self.broken_stream:
                    raise ConnectionAbortedError

    def count(self, body: dict[str, Any], hidden: int) -> dict[str, int]:
        """The usage of a request, whose prefixes are stored."""
        now = self.clock()
        blocks = list(blocks_of(body, hidden, self.weights))
        at = list(prefixes((block for block, _ in blocks), str(body.get("model"))))
        marks = [
            (place, 3600.0 if mark.get("ttl") == "1h" else 300.0)
            for place, (_, mark) in enumerate(blocks)
            if mark is not None
        ]
        read, (_, total) = 0, at[-1]
        for place, _ in marks:
            for back in range(place, max(-1, place - LOOK_BACK), -1):
                used, seconds = self.stored.get(at[back][0], (float("-inf"), 0.0))
                if now - used <= seconds:
                    read = max(read, at[back][1])
                    break
        for place, seconds in marks:
            self.stored[at[place][0]] = (now, seconds)
        last = at[marks[-1][0]][1] if marks else 0
        return usage_of(read, max(0, last - read), total - max(last, read))

    def split(self, body: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
        """The usage as Anthropic reports it: with how much of what was written is kept for an hour."""
        long = usage["cache_creation_input_tokens"] if '"1h"' in json.dumps(body) else 0
        short = usage["cache_creation_input_tokens"] - long
        return {**usage, "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long}}


MESSAGES = "/v1/messages"


def usage_of(read: int, written: int, beside: int = 0) -> dict[str, int]:
    """A usage in the fields of Messages: tokens read from the cache, written to it, and beside it."""
    return {
        "input_tokens": beside,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": 5,
    }


def prefixes(blocks: Iterable[tuple[int, str]], before: str = "") -> Iterator[tuple[str, int]]:
    """For each block, given by its tokens and content: the hash of the request up to its end, and the tokens."""
    chain, total = hashlib.sha256(before.encode()).hexdigest(), 0
    for size, text in blocks:
        chain = hashlib.sha256(f"{chain}{text}".encode("utf-8", "surrogatepass")).hexdigest()
        total += size
        yield chain, total


def blocks_of(
    body: dict[str, Any], hidden: int, weights: Mapping[str, int] = MappingProxyType({})
) -> Iterator[tuple[tuple[int, str], dict[str, Any] | None]]:
    """Each block of a request in the order of the cache: its tokens and content, and its breakpoint."""
    tools = json.dumps(body.get("tools", []))
    system = body.get("system", "")
    yield (hidden + tokens(tools), tools), None
    for part in system if isinstance(system, list) else [{"text": system}]:
        yield (tokens(part["text"]), part["text"]), part.get("cache_control")
    for message in body["messages"]:
        content = message["content"]
        for part in content if isinstance(content, list) else [{"type": "text", "text": content}]:
            text = json.dumps([message["role"], {key: value for key, value in part.items() if key != "cache_control"}])
            yield (weights.get(text) or tokens(text), text), part.get("cache_control")


def tokens(text: str) -> int:
    return round(len(text) / CHARACTERS_PER_TOKEN)


@contextmanager
def caching_provider(clock: Callable[[], float] = lambda: 0.0) -> Iterator[CachingProvider]:
    """A provider on a free port of this machine."""
    provider = CachingProvider(clock=clock)
    with served(provider.say) as provider.url:
        try:
            yield provider
        finally:
            provider.resumed.set()


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
        reading = self.engine._stash.store.get_note(session_id, ProxiedSession)
        found = asyncio.run_coroutine_threadsafe(reading, self.loop).result(30)
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


def recorded(database: Path) -> dict[str, list[Any]]:
    """All messages of each session, of left branches too."""

    async def read(stash: Stash) -> dict[str, list[Any]]:
        names = [each.session_id for each in await stash.store.list_sessions(limit=1_000)]
        return {name: [message.body for message in await stash.store.read_messages(name)] for name in names}

    found: dict[str, list[Any]] = in_stash(database, read)
    return found


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

    how = {"step_seconds": 30.0, "keep_tokens": KEEP_TOKENS, "secret": secret, "clock": clock, **options}
    found: list[Any] = []
    ready = threading.Event()

    @asynccontextmanager
    async def app() -> AsyncIterator[ProxyApp]:
        async with proxy_app(ProxyOptions(provider.url, **how), open_stash) as made:
            found.extend((asyncio.get_running_loop(), made))
            ready.set()
            yield made

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
