"""The proxy on a free port, before a model API on loopback that models the prompt cache; with one clock for both.

A request's blocks are hashed from the start on; each breakpoint stores the hash up to it, and a later request reads the
longest stored one within 20 blocks before one of its own breakpoints, if that was used within its time to live.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2

from contextstash.proxy.app import UVICORN, ProxyApp, ServedProxy, proxy_app
from contextstash.proxy.edits import ProxyOptions
from contextstash.proxy.engine import Engine
from contextstash.stash import Stash
from contextstash.view.branches import path_to
from contextstash.web import serving
from contextstash_storage.records import ProxiedSession, RewindEdit
from contextstash_storage.sqlite import open_sqlite
from tests.support.provider import ReplyingHandler, anthropic_events, event_bytes, served

LOOK_BACK = 20
"""Blocks before a breakpoint in which an earlier request's end is searched (Anthropic's page on prompt caching)."""

CHARACTERS_PER_TOKEN = 3.4

MAX_TEXTS = 5_000


@dataclass
class Asked:
    """One request as it arrived."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Refusal:
    """An answer to one request in place of a reply; `when` says to which."""

    status: int
    message: str
    when: Callable[[dict[str, Any]], bool] = lambda body: True
    times: int = 1


@dataclass
class CachingProvider:
    """The running provider. `usage` holds the usage of each reply; `responses_events` makes the stream for a request of
    the Responses API. `weights` are the tokens of texts, if they are not to be counted by their length. The stream of
    request number `pause_at` stops in its middle until `resumed` is set. `raw_answer` is the status, content type and
    body of every answer; `encoder` returns for what a request accepts the encoding of the answer, if it is no stream.
    """

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
    encoder: Callable[[str], tuple[str, Callable[[bytes], bytes]]] | None = None
    responses_events: Callable[[dict[str, Any]], list[dict[str, Any]]] | None = None

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [each.json for each in self.asked if each.target.startswith("/v1/messages?") or each.target == MESSAGES]

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

    def refusal_of(self, body: dict[str, Any]) -> Refusal | None:
        """The refusal that this request gets, which counts; None if it gets a reply."""
        found = next((each for each in self.refusals if each.times > 0 and each.when(body)), None)
        if found is not None:
            found.times -= 1
        return found

    def split(self, body: dict[str, Any], usage: dict[str, int]) -> dict[str, Any]:
        """The usage as Anthropic reports it: with how much of what was written is kept for an hour."""
        long = usage["cache_creation_input_tokens"] if '"1h"' in json.dumps(body) else 0
        short = usage["cache_creation_input_tokens"] - long
        return {
            **usage,
            "cache_creation": {"ephemeral_5m_input_tokens": short, "ephemeral_1h_input_tokens": long},
        }


@dataclass
class AutomaticCache:
    """The cache of the Responses API: it finds the longest common start of any earlier request, in whole items and in
    steps of 128 tokens, as long as that was used within an hour."""

    clock: Callable[[], float] = lambda: 0.0
    stored: dict[str, float] = field(default_factory=dict)
    weights: Mapping[str, int] = field(default_factory=dict)

    def count(self, body: dict[str, Any], hidden: int) -> dict[str, int]:
        """The usage of a request, whose prefixes are stored. Writing costs nothing extra, and is not reported."""
        now, total, read = self.clock(), 0, 0
        for chain, total in prefixes(items_of(body, hidden, self.weights)):
            if now - self.stored.get(chain, float("-inf")) <= 3600.0:
                read = total
            self.stored[chain] = now
        read = read // 128 * 128 if read >= 1024 else 0
        return usage_of(read, total - read)


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
            text = text_of(message["role"], part)
            yield (weights.get(text) or tokens(text), text), part.get("cache_control")


def items_of(
    body: dict[str, Any], hidden: int, weights: Mapping[str, int] = MappingProxyType({})
) -> Iterator[tuple[int, str]]:
    """What a request of the Responses API holds, in the order of the cache: its tokens and content."""
    around = json.dumps([body.get("tools"), body.get("instructions")])
    yield hidden + tokens(around), around
    for item in body["input"]:
        text = text_of("", item)
        yield weights.get(text) or tokens(text), text


_TEXTS: dict[int, tuple[object, str]] = {}
"""Texts of parts by their identity: a replay sends the same objects in many requests."""


def text_of(role: str, part: dict[str, Any]) -> str:
    """A part without its breakpoint, as text."""
    known = _TEXTS.get(id(part))
    if known is None or known[0] is not part:
        plain = {key: value for key, value in part.items() if key != "cache_control"}
        known = (part, json.dumps([role, plain]))
        if len(_TEXTS) > MAX_TEXTS:
            _TEXTS.clear()
        _TEXTS[id(part)] = known
    return known[1]


def tokens(text: str) -> int:
    return round(len(text) / CHARACTERS_PER_TOKEN)


@contextmanager
def caching_provider(clock: Callable[[], float] = lambda: 0.0) -> Iterator[CachingProvider]:
    """A provider on a free port of this machine."""
    provider = CachingProvider(clock=clock)
    with served(_Handler, provider=provider) as provider.url:
        try:
            yield provider
        finally:
            provider.resumed.set()


class _Handler(ReplyingHandler, BaseHTTPRequestHandler):
    provider: CachingProvider

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def _take(self) -> Asked:
        asked = Asked(self.command, self.path, list(self.headers.items()), self.asked_bytes())
        self.provider.asked.append(asked)
        return asked

    def do_POST(self) -> None:
        asked, provider = self._take(), self.provider
        if self.path.endswith("/responses") and provider.responses_events is not None:
            self._events(provider.responses_events(asked.json))
        elif self.path.split("?")[0] != MESSAGES:
            self._send({"input_tokens": 12, "echo": len(asked.body)})
        elif provider.raw_answer is not None:
            status, kind, body = provider.raw_answer
            self._send_raw(body, kind, status)
        elif (refusal := provider.refusal_of(asked.json)) is not None:
            kind = "rate_limit_error" if refusal.status == 429 else "invalid_request_error"
            self._send({"type": "error", "error": {"type": kind, "message": refusal.message}}, refusal.status)
        else:
            self._reply(asked.json)

    def _reply(self, body: dict[str, Any]) -> None:
        usage = self.provider.count(body, int(self.headers.get("x-hidden-tokens") or 0))
        prompt = sum(usage.values()) - usage["output_tokens"]
        if self.provider.window is not None and prompt > self.provider.window:
            message = f"prompt is too long: {prompt} tokens > {self.provider.window} maximum"
            self._send({"type": "error", "error": {"type": "invalid_request_error", "message": message}}, 400)
            return
        self.provider.usage.append(usage)
        reply = reply_of(self.provider.reply, self.provider.split(body, usage))
        if body.get("stream"):
            self._events(anthropic_events(reply))
        else:
            self._send(reply)

    def do_GET(self) -> None:
        self._take()
        self._send({"data": ["model"]})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def _send(self, answer: dict[str, Any], status: int = 200) -> None:
        self._send_raw(json.dumps(answer).encode(), "application/json", status)

    def _send_raw(self, data: bytes, kind: str, status: int) -> None:
        headers = {"set-cookie": "secret=cookie", "request-id": "req_1"}
        if self.provider.encoder is not None:
            headers["content-encoding"], encode = self.provider.encoder(self.headers.get("accept-encoding") or "")
            data = encode(data)
        headers["content-length"] = str(len(data))
        self.send_bytes(b"" if self.command == "HEAD" else data, kind, status, headers)

    def _events(self, events: Iterable[dict[str, Any]]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in events:
            self._chunk(event_bytes(event))
            if event["type"] == "content_block_delta" and len(self.provider.asked) == self.provider.pause_at:
                self.provider.resumed.wait(30)
            if self.provider.broken_stream and event["type"] == "content_block_delta":
                self.close_connection = True
                return
        self._chunk(b"")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def reply_of(text: str, usage: dict[str, Any]) -> dict[str, Any]:
    """A whole reply of one text."""
    content = [{"type": "text", "text": text}]
    ended = {"stop_reason": "end_turn", "stop_sequence": None}
    return {"type": "message", "role": "assistant", "content": content, **ended, "usage": usage}


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
