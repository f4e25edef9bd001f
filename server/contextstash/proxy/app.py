"""The proxy as an ASGI application: every request goes on to the model API, and its response back as it comes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from contextstash.proxy.engine import EDIT_REFUSALS, MAX_BODY_BYTES, Engine
from contextstash.proxy.preparation import Prepared
from contextstash.proxy.stream_start import held_start
from contextstash.proxy.upstream import Upstream
from contextstash.proxy.usage_tap import UsageTap, decoded
from contextstash.proxy.wire import RawHeaders, header, is_foreign_page, is_web_socket, passed_on

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

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

MAX_ERROR_BYTES = 1 << 20
"""A refusal is read up to this size before it is passed on. Providers' are below 10 KB."""


STREAMED_REFUSAL = 400
"""The status that stands for a refusal within a stream whose own status is 200."""

Result = TypeVar("Result")


@dataclass(frozen=True)
class Reply:
    """A response of the model API: `chunks` are its body, `refusal` the status and the text with which it refuses the
    request."""

    response: httpx2.Response
    chunks: AsyncIterator[bytes]
    refusal: tuple[int, bytes] | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the model replies."""
        return self.refusal is None and self.response.status_code < 400


class ClientGoneError(Exception):
    """The client closed its connection before the response ended."""


class ProxyApp:
    """Handles one HTTP request at a time of each connection; see the module."""

    def __init__(self, upstream: Upstream, engine: Engine, at_end: Callable[[], Awaitable[None]]) -> None:
        """`at_end` is called when the server has stopped."""
        self._upstream = upstream
        self._engine = engine
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and is_foreign_page(scope["headers"]):
            await self._refuse(send)
        elif scope["type"] == "http" and is_web_socket(scope["headers"]):
            # Codex then sends its requests over HTTP, at once and for the rest of its session (seen in 0.169).
            await send_error(send, 426, "invalid_request_error", "contextstash proxy: WebSocket is not supported.")
        elif scope["type"] == "http":
            await Exchange(scope, receive, send, self._upstream, self._engine).run()
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._at_end()
            await send({"type": "lifespan.shutdown.complete"})

    async def _refuse(self, send: Send) -> None:
        logger.warning("refused a request of a web page")
        await send_error(send, 403, "permission_error", "contextstash proxy: web pages of other hosts are refused.")


class Exchange:
    """One request and its response."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, upstream: Upstream, engine: Engine) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._upstream = upstream
        self._engine = engine
        self._headers: RawHeaders = list(scope["headers"])
        query = scope["query_string"]
        self._target = (scope.get("raw_path") or scope["path"].encode()) + (b"?" + query if query else b"")
        self._started = False
        self._finished = False

    async def run(self) -> None:
        """Pass the request on, and its response back."""
        format_name = self._format()
        try:
            if format_name is None:
                await self._pass_on(self._body())
            else:
                await self._pass_read(format_name)
        except ClientGoneError:
            logger.debug("the client closed its connection")
        except Exception as error:
            if self._started or not _is_transport_error(error):
                raise
            await self._no_response(error)

    def _format(self) -> str | None:
        """The format of the request, None if it is passed on unread."""
        if self._scope["method"] != "POST" or header(self._headers, b"content-encoding"):
            return None
        path = self._scope["path"]
        return next((name for end, name in READ_ROUTES.items() if path.endswith(end)), None)

    async def _pass_read(self, format_name: str) -> None:
        read, rest = await self._read_body()
        if rest is not None:
            await self._pass_on(rest)
            return
        prepared = await self._engine.prepare(format_name, self._headers, read)
        if prepared is None:
            await self._pass_on(read)
            return
        try:
            await self._pass_prepared(prepared)
        finally:
            self._engine.ended(prepared)

    async def _pass_prepared(self, prepared: Prepared) -> None:
        reply = await self._unless_gone(self._asked(prepared))
        healed = False
        if reply.refusal is not None:
            again = await self._engine.after_refusal(prepared, *reply.refusal)
            if again is not None:
                await reply.response.aclose()
                reply = await self._unless_gone(self._asked(again))
                prepared, healed = again, again.edited and reply.succeeded
        await self._relay(reply, prepared, healed=healed)

    async def _asked(self, prepared: Prepared) -> Reply:
        """The reply to a request, with what it says if the request is refused."""
        response = await self._request(prepared.body)
        encoding = response.headers.get("content-encoding")
        chunks = response.aiter_raw()
        if response.status_code in EDIT_REFUSALS and "json" in response.headers.get("content-type", ""):
            error, whole = await _beginning(chunks)
            if not whole:
                return Reply(response, _joined([error], chunks))
            return Reply(response, _listed([error]), (response.status_code, decoded(error, encoding)))
        if prepared.request.format == "openai-responses" and "event-stream" in response.headers.get("content-type", ""):
            held, refusal = await held_start(chunks, encoding)
            return Reply(response, _joined(held, chunks), None if refusal is None else (STREAMED_REFUSAL, refusal))
        return Reply(response, chunks)

    async def _pass_on(self, body: bytes | AsyncIterator[bytes]) -> None:
        has_body = header(self._headers, b"content-length") or header(self._headers, b"transfer-encoding")
        response = await self._request(body if has_body else None)
        await self._relay(Reply(response, response.aiter_raw()), None)

    async def _request(self, body: bytes | AsyncIterator[bytes] | None) -> httpx2.Response:
        return await self._upstream.send(self._scope["method"], self._target, self._headers, body)

    async def _relay(self, reply: Reply, prepared: Prepared | None, *, healed: bool = False) -> None:
        """The response, chunk by chunk as it comes."""
        response = reply.response
        tap = UsageTap(response.headers.get("content-type"), response.headers.get("content-encoding"))
        try:
            await self._unless_gone(self._chunks(reply, prepared, tap, healed=healed))
        finally:
            await response.aclose()
            self._finish(reply, prepared, tap, healed=healed)

    async def _unless_gone(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns; it is cancelled if the client goes away: a reply that nobody reads costs money. Raises
        ClientGoneError then."""
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGoneError
            return working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    def _finish(self, reply: Reply, prepared: Prepared | None, tap: UsageTap, *, healed: bool) -> None:
        if self._finished:
            return
        self._finished = True
        if prepared is not None and reply.succeeded:
            usage = tap.usage
            self._engine.finish(prepared, usage, healed=healed, response=tap.response)

    async def _chunks(self, reply: Reply, prepared: Prepared | None, tap: UsageTap, *, healed: bool) -> None:
        await self._start(reply.response, prepared)
        async for chunk in reply.chunks:
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            if prepared is not None:
                tap.take(chunk)
        # Booked before the client sees the end: its next request may come at once.
        self._finish(reply, prepared, tap, healed=healed)
        await self._send({"type": "http.response.body", "body": b""})

    async def _start(self, response: httpx2.Response, prepared: Prepared | None) -> None:
        headers = passed_on(response.headers.raw)
        if prepared is not None:
            headers.append((SESSION_HEADER, prepared.conversation.session_id.encode("ascii", "replace")))
        self._started = True
        await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})

    async def _no_response(self, error: Exception) -> None:
        """The upstream could not be reached, or closed the connection: an error that clients try again on."""
        logger.warning("no response from upstream: %s", type(error).__name__)
        await send_error(self._send, 502, "api_error", "contextstash proxy: the model API could not be reached.")

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            if body := message.get("body"):
                yield body
            if not message.get("more_body"):
                return

    async def _read_body(self) -> tuple[bytes, AsyncIterator[bytes] | None]:
        """The whole body; or, if it is too large to be read, all of it as a stream."""
        chunks: list[bytes] = []
        size = 0
        body = self._body()
        async for chunk in body:
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                return b"", _joined(chunks, body)
        return b"".join(chunks), None

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass


async def send_error(send: Send, status: int, kind: str, text: str) -> None:
    """Send an error of ours in the form of the providers' errors."""
    body = json.dumps({"type": "error", "error": {"type": kind, "message": text}}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _listed(chunks: list[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def _joined(chunks: list[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk
    async for chunk in rest:
        yield chunk


async def _beginning(chunks: AsyncIterator[bytes]) -> tuple[bytes, bool]:
    """The first part of a body, and whether it is all of it: a refusal that is too long is passed on as it comes."""
    found = b""
    async for chunk in chunks:
        found += chunk
        if len(found) > MAX_ERROR_BYTES:
            return found, False
    return found, True


def _is_transport_error(error: Exception) -> bool:
    import httpx2

    return isinstance(error, httpx2.TransportError)
