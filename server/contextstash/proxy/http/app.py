"""The proxy as an ASGI application: every request goes on to the model API, and its response back as it comes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from contextstash.proxy.conversations import AskedRequest
from contextstash.proxy.edits import Prepared
from contextstash.proxy.engine import EDIT_REFUSALS, Engine
from contextstash.proxy.headers import RawHeaders, header, is_web_socket, passed_on
from contextstash.proxy.http.admission import behind_secret, is_foreign_host, is_foreign_page
from contextstash.proxy.http.body_limits import MAX_BODY_BYTES, HeldBodies
from contextstash.proxy.http.encodings import decodable_only, packed, readable_error, unpacked
from contextstash.proxy.http.final_reply import final_reply
from contextstash.proxy.http.stream_start import held_start
from contextstash.proxy.http.upstream import Upstream
from contextstash.proxy.http.usage_tap import UsageTap
from contextstash.proxy.plan import writes_long

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
    "/responses/compact": "openai-responses",
}
"""The ends of the paths whose requests are read, and their formats. All others are passed on unread."""

COMPACTION_ROUTE = "/responses/compact"
"""Takes a conversation, and returns what stands for it from then on (OpenAI's API reference)."""

SESSION_HEADER = b"x-contextstash-session"
"""Names the session of a request in its response, for those who debug."""

MAX_ERROR_BYTES = 1 << 20
"""A refusal is read up to this size before it is passed on. Providers' are below 10 KB."""


BODY_SECONDS = 30.0
"""How long a body may stop to arrive: it comes from this machine, without a pause."""

STREAMED_REFUSAL = 400
"""The status that stands for a refusal within a stream whose own status is 200."""


@dataclass(frozen=True)
class Reply:
    """A response of the model API: `chunks` are its body, `refusal` the status and the text with which it refuses the
    request, None in place of a text that cannot be read."""

    response: httpx2.Response
    chunks: AsyncIterator[bytes]
    refusal: tuple[int, bytes | None] | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the model replies."""
        return self.refusal is None and self.response.status_code < 400


class ClientGoneError(Exception):
    """The client closed its connection before the response ended."""


class BodyTimeoutError(Exception):
    """The rest of a request's body did not arrive."""


class ProxyApp:
    """Handles one HTTP request at a time of each connection; see the module."""

    def __init__(
        self, upstream: Upstream, engine: Engine, at_end: Callable[[], Awaitable[None]], secret: str | None = None
    ) -> None:
        """`at_end` is called when the server has stopped. Only requests whose path begins with the `secret` are
        served, if there is one."""
        self._upstream = upstream
        self._engine = engine
        self._at_end = at_end
        self._secret = secret
        self._held = HeldBodies()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await self._at_end()
            await send({"type": "lifespan.shutdown.complete"})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse whoever is not a program of this machine that was told the address; serve the others."""
        if is_foreign_host(scope["headers"]) or is_foreign_page(scope["headers"]):
            logger.warning("refused a request of a web page")
            await _refuse(send, "web pages of other hosts are refused.")
            return
        if not (scope.get("raw_path") or b"/").startswith(b"/"):
            await send_error(send, 400, "invalid_request_error", "contextstash proxy: this is no forward proxy.")
            return
        own = scope if self._secret is None else behind_secret(scope, self._secret)
        if own is None:
            await _refuse(send, "this proxy serves only the client that contextstash run has started.")
            return
        if header(own["headers"], b"content-length") and header(own["headers"], b"transfer-encoding"):
            # The next reader may take another of the two for the body's length (RFC 9112, section 6.3).
            text = "contextstash proxy: a request has either a length or a transfer encoding."
            await send_error(send, 400, "invalid_request_error", text)
            return
        if is_web_socket(own["headers"]):
            # Codex then sends its requests over HTTP, at once and for the rest of its session (seen in 0.169).
            await send_error(send, 426, "invalid_request_error", "contextstash proxy: WebSocket is not supported.")
            return
        await Exchange(own, receive, send, self._upstream, self._engine, self._held).run()


async def _refuse(send: Send, reason: str) -> None:
    await send_error(send, 403, "permission_error", f"contextstash proxy: {reason}")


class Exchange:
    """One request and its response."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, upstream: Upstream, engine: Engine, held: HeldBodies
    ) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._upstream = upstream
        self._engine = engine
        self._all_held = held
        self._held = 0
        self._arrived = asyncio.Event()
        self._headers: RawHeaders = list(scope["headers"])
        query = scope["query_string"]
        self._target = (scope.get("raw_path") or scope["path"].encode()) + (b"?" + query if query else b"")
        self._encoding = header(self._headers, b"content-encoding")
        self._original = b""
        self._started = False

    async def run(self) -> None:
        """Pass the request on, and its response back."""
        format_name = self._format()
        work = self._pass_on(self._body()) if format_name is None else self._pass_read(format_name)
        try:
            await self._unless_gone(work)
        except ClientGoneError:
            logger.debug("the client closed its connection")
        except BodyTimeoutError:
            await send_error(self._send, 408, "timeout_error", "contextstash proxy: the request did not arrive.")
        except Exception as error:
            if self._started or not _is_transport_error(error):
                raise
            await self._no_response(error)
        finally:
            self._all_held.give_back(self._held)

    def _format(self) -> str | None:
        """The format of the request, None if it is passed on unread."""
        if self._scope["method"] != "POST":
            return None
        path = self._scope["path"]
        return next((name for end, name in READ_ROUTES.items() if path.endswith(end)), None)

    async def _pass_read(self, format_name: str) -> None:
        read, rest = await self._read_body()
        if rest is not None:
            await self._pass_on(rest)
            return
        body = read if self._encoding is None else unpacked(read, self._encoding, MAX_BODY_BYTES)
        prepared = None
        if body is not None and (body is read or self._hold(len(body))):
            compacts = self._scope["path"].endswith(COMPACTION_ROUTE)
            prepared = await self._engine.prepare(format_name, self._headers, body, compacts=compacts)
        if prepared is not None:
            self._headers = decodable_only(self._headers)
        if not isinstance(prepared, Prepared):
            await self._pass_on(read, prepared)
            return
        self._original = read
        try:
            await self._pass_prepared(prepared)
        finally:
            self._engine.ended(prepared)

    async def _pass_prepared(self, prepared: Prepared) -> None:
        reply = await self._asked(prepared)
        healed = False
        if reply.refusal is not None:
            again = await self._engine.after_refusal(prepared, *reply.refusal)
            if again is not None:
                await reply.response.aclose()
                reply = await self._asked(again)
                prepared, healed = again, again.edited and reply.succeeded
        await self._relay(reply, prepared, healed=healed)

    async def _asked(self, prepared: Prepared) -> Reply:
        """The reply to a request, with what it says if the request is refused."""
        sent = self._as_sent(prepared)
        response = await self._upstream.send(self._scope["method"], self._target, self._headers, sent)
        encoding = response.headers.get("content-encoding")
        chunks = response.aiter_raw()
        if response.status_code in EDIT_REFUSALS and "json" in response.headers.get("content-type", ""):
            error, whole = await _beginning(chunks)
            if not whole:
                return Reply(response, _joined([error], chunks))
            return Reply(response, _listed([error]), (response.status_code, readable_error(error, encoding)))
        if prepared.request.format == "openai-responses" and "event-stream" in response.headers.get("content-type", ""):
            held, refusal = await held_start(chunks, encoding)
            return Reply(response, _joined(held, chunks), None if refusal is None else (STREAMED_REFUSAL, refusal))
        return Reply(response, chunks)

    def _as_sent(self, prepared: Prepared) -> bytes:
        """The body in the encoding in which the client sent it: the client's own bytes if nothing is edited."""
        if not prepared.edited:
            return self._original
        return prepared.body if self._encoding is None else packed(prepared.body, self._encoding)

    async def _pass_on(self, body: bytes | AsyncIterator[bytes], side: AskedRequest | None = None) -> None:
        has_body = header(self._headers, b"content-length") or header(self._headers, b"transfer-encoding")
        if not has_body:
            self._arrived.set()
        sent = body if has_body else None
        response = await self._upstream.send(self._scope["method"], self._target, self._headers, sent)
        await self._relay(Reply(response, response.aiter_raw()), side)

    async def _relay(self, reply: Reply, prepared: Prepared | AskedRequest | None, *, healed: bool = False) -> None:
        """The response, chunk by chunk as it comes."""
        response, headers = reply.response, passed_on(reply.response.headers.raw)
        kind, encoding = response.headers.get("content-type"), response.headers.get("content-encoding")
        tap = UsageTap(kind, encoding, long_writes=prepared is not None and writes_long(prepared.request))
        if isinstance(prepared, Prepared):
            headers.append((SESSION_HEADER, prepared.conversation.session_id.encode("ascii", "replace")))
        self._started = True
        try:
            await self._send({"type": "http.response.start", "status": response.status_code, "headers": headers})
            async for chunk in reply.chunks:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
                if prepared is not None:
                    tap.take(chunk)
        finally:
            # Booked before the client sees the end: its next request may come at once.
            if reply.succeeded:
                self._finish(prepared, tap, healed=healed)
            await response.aclose()
        await self._send({"type": "http.response.body", "body": b""})

    async def _unless_gone(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for `work`; it is cancelled if the client goes away: an unread reply costs money. Raises
        ClientGoneError then."""
        working, watching = asyncio.ensure_future(work), asyncio.ensure_future(self._gone())
        try:
            await asyncio.wait({working, watching}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientGoneError
            working.result()
        finally:
            for task in (working, watching):
                task.cancel()
            await asyncio.gather(working, watching, return_exceptions=True)

    def _finish(self, prepared: Prepared | AskedRequest | None, tap: UsageTap, *, healed: bool) -> None:
        if isinstance(prepared, AskedRequest):
            self._engine.finish_side_call(prepared, tap.usage)
        elif prepared is not None:
            final = partial(final_reply, prepared.request.format, tap.parts)
            self._engine.finish(
                prepared, tap.usage, healed=healed, response=tap.response, dropped=tap.dropped, final=final
            )

    async def _no_response(self, error: Exception) -> None:
        """The upstream could not be reached, or closed the connection: an error that clients try again on."""
        logger.warning("no response from upstream: %s", type(error).__name__)
        await send_error(self._send, 502, "api_error", "contextstash proxy: the model API could not be reached.")

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGoneError
            if not message.get("more_body"):
                self._arrived.set()
            if body := message.get("body"):
                yield body
            if not message.get("more_body"):
                return

    async def _read_body(self) -> tuple[bytes, AsyncIterator[bytes] | None]:
        """The whole body; or all of it as a stream, if it is too large to be read or all requests together hold too
        much. Raises BodyTimeoutError if it stops to arrive: what it holds would be missing for others."""
        chunks: list[bytes] = []
        size = 0
        body, now = self._body(), asyncio.get_running_loop().time
        try:
            async with asyncio.timeout_at(now() + BODY_SECONDS) as limit:
                async for chunk in body:
                    limit.reschedule(now() + BODY_SECONDS)
                    chunks.append(chunk)
                    size += len(chunk)
                    if size > MAX_BODY_BYTES or not self._hold(len(chunk)):
                        return b"", _joined(chunks, body)
        except TimeoutError:
            raise BodyTimeoutError from None
        return b"".join(chunks), None

    def _hold(self, size: int) -> bool:
        """Whether so many bytes more may be held until the request has ended."""
        fits = self._all_held.take(size)
        self._held += size if fits else 0
        return fits

    async def _gone(self) -> None:
        await self._arrived.wait()  # until then, whoever reads the body notices it
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
    while chunks:
        yield chunks.pop(0)
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
