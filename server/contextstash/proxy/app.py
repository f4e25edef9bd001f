"""The proxy as an ASGI application, and how it is served: in a process of its own or beside a client. Every request
goes on to the model API, and its response back as it comes."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hmac import compare_digest
from http.cookiejar import CookieJar, DefaultCookiePolicy
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

import anyio
import httpx2
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from contextstash.base.process import configure_logs
from contextstash.proxy.edits import Prepared, ProxyOptions, writes_long
from contextstash.proxy.engine import Engine, RawHeaders
from contextstash.proxy.replies import Reply
from contextstash.web import is_trusted, serve, serving
from contextstash.window.models import price_of
from contextstash_storage.errors import BadInputError, ContextstashError
from contextstash_storage.records import Usage

if TYPE_CHECKING:
    from contextstash.stash import Stash

logger = logging.getLogger(__name__)

READ_ROUTES = {
    "/v1/messages": "anthropic",
    "/v1/chat/completions": "openai-chat",
    "/chat/completions": "openai-chat",
    "/v1/responses": "openai-responses",
    "/responses": "openai-responses",
}
"""The ends of the paths whose requests are read, and their formats. All others are passed on unread."""

SESSION_HEADER = b"x-contextstash-session"
"""Names the session of a request in its response, for those who debug."""

HOP_BY_HOP = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection"),
        *(b"te", b"trailer", b"transfer-encoding", b"upgrade"),
    }
)
"""Headers about one connection, which a proxy must not pass on (RFC 9110, section 7.6.1)."""

MAX_BODY_BYTES = 48 << 20
"""A compressed body that unpacks to more is passed on unread. Anthropic refuses requests over 32 MB."""

IDLE_SECONDS = 30.0
"""How long an idle connection is kept. Providers close theirs after a minute or more; a request on a connection that is
just being closed would fail."""

ZSTD_LEVEL = 1
"""How hard an edited body is compressed: 2 MB take about 5 ms at level 1, and the client waits for it."""

LAST_SECONDS = 10.0
"""How long the last requests may take to be recorded, after a signal and the second that replies have then, or when the
client has ended. Most take milliseconds; with eight busy processes on two cores the first one of a session took 3 s."""

END_SECONDS = 2.0
"""How much longer than these seconds the end may take, with what is written then."""

UVICORN: dict[str, Any] = {
    "server_header": False,
    "date_header": False,
    "ws": "none",
    "proxy_headers": False,
    "lifespan": "off",
    "timeout_keep_alive": 600,
    "timeout_graceful_shutdown": 1,
}
"""uvicorn's settings for an application that passes on others' responses: it adds no headers of its own, and leaves it
to the client when an idle connection ends (longer than clients keep theirs). After a signal a reply has one second
left: it may take minutes, and who ends the proxy waits for it."""


OpenStash = Callable[[], Awaitable["Stash"]]


def serve_proxy(options: ProxyOptions, open_stash: OpenStash, host: str, port: int) -> None:
    """Serve until a signal. Raises BadInputError if the address of the model API or the port cannot be used."""
    upstream = check_upstream(options.upstream)
    configure_logs()
    app = partial(proxy_app, options, open_stash)
    serve(app, host, port, lambda address: f"contextstash proxy: {address} -> {upstream}", settings=UVICORN)


@contextmanager
def proxy_beside(options: ProxyOptions, open_stash: OpenStash, log: TextIO) -> Iterator[str]:
    """Serve in a thread of this process while a client runs; yields the address for it. Other users of this machine can
    reach the port, but not guess the path. The proxy's lines go to the `log`: the terminal belongs to the client."""
    configure_logs(log)
    logging.captureWarnings(True)
    with serving(partial(proxy_app, options, open_stash), UVICORN, LAST_SECONDS + END_SECONDS) as port:
        yield f"http://127.0.0.1:{port}/{options.secret}"


def check_upstream(url: str) -> str:
    """The address without a slash at its end. Raises BadInputError if requests, which hold credentials, would leave
    this machine unencrypted."""
    parts = urlsplit(url)
    if not is_trusted(url) or parts.username or parts.query or parts.fragment:
        raise BadInputError(
            "--upstream takes an address such as https://api.anthropic.com: https, unless it is on this machine, since"
            " requests hold credentials, and without a user name, query or fragment."
        )
    return url.rstrip("/")


@asynccontextmanager
async def proxy_app(options: ProxyOptions, open_stash: OpenStash) -> AsyncIterator[ProxyApp]:
    """The application, with the stash and the connection to the model API open. Without a stash all requests go on
    unread."""
    # uvicorn and httpx2 would log addresses and tracebacks, which can quote a request.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL + 1)
    upstream = Upstream(check_upstream(options.upstream))
    # The price table is read before the first request needs it: that takes half a second.
    threading.Thread(target=price_of, args=("claude-opus-4-5", Usage(prompt_tokens=1)), daemon=True).start()
    engine: Engine | None = None
    try:
        stash = await open_stash()
    except ContextstashError as error:
        logger.warning("Nothing is recorded or pruned: %s", error)
    else:
        engine = Engine(stash, options)
    try:
        yield ProxyApp(upstream, engine, options.secret)
    finally:
        if engine is not None:
            # Only under `run` it is known that no further request comes.
            last = engine.idle() if options.secret is None else engine.end()
            with suppress(TimeoutError):
                await asyncio.wait_for(last, LAST_SECONDS)
            await stash.close()
        await upstream.close()


@dataclass(frozen=True)
class ProxyApp:
    """Serves those who were told its address: only requests whose path begins with the `secret`, if there is one.
    Without an `engine` all requests go on unread."""

    upstream: Upstream
    engine: Engine | None
    secret: str | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: bytes = scope.get("raw_path", b"")
        first, _, rest = path[1:].partition(b"/")
        if self.secret is not None and not compare_digest(first, self.secret.encode()):
            reason = "this proxy serves only the client that contextstash run has started."
            await send_error(send, 403, "permission_error", reason)
        elif (header(scope["headers"], b"upgrade") or "").lower() == "websocket":
            # Codex then sends its requests over HTTP, at once and for the rest of its session (seen in 0.169).
            await send_error(send, 426, "invalid_request_error", "WebSocket is not supported.")
        else:
            with suppress(ClientDisconnect):
                body = await Request(scope, receive).body()
                exchange = Exchange(self, scope, path if self.secret is None else b"/" + rest, body, send)
                await unless_gone(receive, exchange.run())


async def unless_gone(receive: Receive, work: Awaitable[None]) -> None:
    """Wait for `work`; it is cancelled if the client goes away: an unread reply costs money."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await work
        group.cancel_scope.cancel()


class Exchange:
    """One request and its response."""

    def __init__(self, app: ProxyApp, scope: Scope, path: bytes, body: bytes, send: Send) -> None:
        """`path` is that of the model API."""
        self._method, self._path, self._query = scope["method"], path, scope["query_string"]
        self._send, self._upstream, self._engine = send, app.upstream, app.engine
        self._headers: RawHeaders = list(scope["headers"])
        self._encoding = header(self._headers, b"content-encoding")
        has_body = header(self._headers, b"content-length") or header(self._headers, b"transfer-encoding")
        self._body = body if has_body else None

    async def run(self) -> None:
        """Pass the request on, and its response back."""
        prepared = await self._prepared()
        try:
            reply = await self._reply(prepared)
            if (refusal := reply.refusal) is not None and prepared is not None and self._engine is not None:
                again = await self._engine.after_refusal(prepared, *refusal)
                if again is not None:
                    await reply.response.aclose()
                    prepared, reply = again, await self._reply(again)
                    if reply.succeeded and not again.edited:
                        self._engine.original_accepted(again, *refusal)
        except httpx2.TransportError as error:
            logger.warning("no response from upstream: %s", type(error).__name__)
            await send_error(self._send, 502, "api_error", "the model API could not be reached.")  # clients try again
            return
        await self._relay(reply, prepared)

    async def _prepared(self) -> Prepared | None:
        """The request as the engine has prepared it; None if it goes on as it is."""
        path = self._path.decode("latin-1")
        format_name = next((name for end, name in READ_ROUTES.items() if path.endswith(end)), None)
        if self._engine is None or format_name is None or self._method != "POST":
            return None
        body = self._body or b""
        plain = body if self._encoding is None else unpacked(body, self._encoding)
        return await self._engine.prepare(format_name, self._headers, plain)

    async def _reply(self, prepared: Prepared | None) -> Reply:
        """The reply to the request. That to a prepared one is not compressed, so that it can be read; it is known
        whether it refuses the request."""
        target = self._path + (b"?" + self._query if self._query else b"")
        body, headers = self._body, self._headers
        if prepared is None:
            return Reply(await self._upstream.send(self._method, target, headers, body))
        headers = [pair for pair in headers if pair[0].lower() != b"accept-encoding"]
        headers.append((b"accept-encoding", b"identity"))
        if prepared.edited:
            body = prepared.body if self._encoding is None else zstandard().compress(prepared.body, ZSTD_LEVEL)
        response = await self._upstream.send(self._method, target, headers, body)
        reply = Reply(response, prepared.request.format, long_writes=writes_long(prepared.request))
        await reply.begin()
        return reply

    async def _relay(self, reply: Reply, prepared: Prepared | None) -> None:
        """The response, chunk by chunk as it comes."""
        response, headers = reply.response, passed_on(reply.response.headers.raw)
        if prepared is not None:
            headers.append((SESSION_HEADER, prepared.conversation.session_id.encode("ascii", "replace")))
        try:
            await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for chunk in reply.chunks():
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            # Booked before the client sees the end: its next request may come at once.
            if reply.succeeded and prepared is not None and self._engine is not None:
                self._engine.finish(prepared, reply.usages, reply.last_words)
            await response.aclose()
        await self._send({"type": "http.response.body", "body": b""})


class Upstream:
    """One model API. It has no time-outs, follows no redirects, and keeps no cookies: all that is the client's."""

    def __init__(self, url: str) -> None:
        """`url` has been checked by `check_upstream`."""
        self._base = httpx2.URL(url)
        self._path = self._base.raw_path.rstrip(b"/")
        self._client = httpx2.AsyncClient(
            timeout=None,
            follow_redirects=False,
            limits=httpx2.Limits(max_connections=None, keepalive_expiry=IDLE_SECONDS),
            cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=[])),
        )
        self.close = self._client.aclose

    async def send(self, method: str, target: bytes, headers: RawHeaders, body: bytes | None) -> httpx2.Response:
        """Send a request with this target, byte for byte, and return its response as soon as the headers are there.
        Raises httpx2.TransportError if none comes."""
        sent = [pair for pair in passed_on(headers) if pair[0].lower() not in (b"host", b"expect", b"content-length")]
        if body is not None:
            sent.append((b"content-length", str(len(body)).encode()))
        request = httpx2.Request(
            method, self._base, headers=sent, content=body, extensions={"target": self._path + target}
        )
        return await self._client.send(request, stream=True)


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> RawHeaders:
    """The headers without those about the connection, in their order and spelling."""
    listed = list(headers)
    named = (header(listed, b"connection") or "").lower().encode("latin-1").split(b",")
    dropped = HOP_BY_HOP | {name.strip() for name in named}
    return [(name, value) for name, value in listed if name.lower() not in dropped]


def header(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """The first value of a header; None if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


def unpacked(data: bytes, encoding: str) -> bytes:
    """A request's whole body without its compression, by the one method that a client was seen to use (Codex). Empty,
    so that it counts as unread, if it cannot be unpacked or is too long."""
    if encoding.strip().lower() != "zstd":
        return b""
    try:
        decompressor = zstandard().ZstdDecompressor()
        found: bytes = decompressor.decompress(data, MAX_BODY_BYTES)
    except Exception:  # a body from elsewhere may hold anything
        return b""
    return found if decompressor.eof and not decompressor.unused_data else b""


def zstandard() -> ModuleType:
    """Python has it from 3.14 on, a package with the same interface before. Raises ImportError if there is none."""
    try:
        return import_module("compression.zstd")
    except ImportError:
        return import_module("backports.zstd")


async def send_error(send: Send, status: int, kind: str, text: str) -> None:
    """Send our own error in the form of the providers' errors."""
    error = {"type": kind, "message": f"contextstash proxy: {text}"}
    response = JSONResponse({"type": "error", "error": error}, status)
    await send({"type": "http.response.start", "status": status, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body})
