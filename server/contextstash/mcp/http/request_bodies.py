"""Bodies of HTTP requests, checked like lines on stdin: the same input gets the same error on both transports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.transport_security import TransportSecurityMiddleware
from mcp.types import INVALID_REQUEST, JSONRPCMessage, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from contextstash.mcp.wire.json_rpc import MAX_MESSAGE_BYTES, Refusal, read_message, refusal, too_large, written
from contextstash.mcp.wire.sendable import has_lone_surrogate
from contextstash.mcp.wire.surrogates import HALVES, with_placeholders
from contextstash.web.asgi_bodies import replayed

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs write it before UTF-8; the SDK's reader refuses it."""

MAX_ID_SEARCH_BYTES = 64 * 1024
"""Bytes at each end of a body that is too large in which its id is searched: libraries write the id first or last."""


MAX_HELD_BYTES = 8 * MAX_MESSAGE_BYTES
"""Bytes of all bodies in memory at a time; further requests are refused with 503. Each body is within its own limit,
and together they could fill the memory."""

BODY_SECONDS = 60.0
"""Seconds that a body may take: 64 MiB at 9 Mbit/s. A slower client gets 408."""


class StrictBodies:
    """ASGI middleware in front of the endpoint at one path, behind the authentication. A request that the endpoint
    would refuse is refused before its body is read, so that no stranger can have megabytes parsed."""

    def __init__(self, app: Any, path: str) -> None:
        self._app = app
        self._path = path
        self._security = TransportSecurityMiddleware()
        self._held = HeldBytes(MAX_HELD_BYTES)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # The endpoint also has the path /mcp%0A: the `$` of a route's pattern matches before a line break at the end.
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"].removesuffix("\n") != self._path:
            await self._app(scope, receive, send)
            return
        if not isinstance(scope.get("user"), AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        refused = await self._security.validate_request(Request(scope), is_post=True)
        if refused is not None:
            await refused(scope, receive, send)
            return
        with self._held.share() as take:
            body = await _arrived(receive, take)
            if isinstance(body, Response):
                await body(scope, receive, send)
            elif body is not None:
                await self._pass_on(body, scope, receive, send)

    async def _pass_on(self, body: bytes | Refusal, scope: Any, receive: Any, send: Any) -> None:
        """Let the endpoint respond to a body, or refuse it."""
        read = body if isinstance(body, Refusal) else await anyio.to_thread.run_sync(_readable, body)
        if isinstance(read, Refusal):
            logger.warning("a message from a client was refused: %s", read.kind)
            [reply, *_] = read.replies or (refusal(INVALID_REQUEST, "It is not a JSON-RPC response."),)
            status = 413 if read.kind == "too large" else 400
            await Response(written(reply), status, media_type="application/json")(scope, receive, send)
            return
        await self._app(_with_length(scope, len(read)), replayed(read, receive), send)


class TooMuchHeldError(Exception):
    """The bodies of all requests together are too large."""


class HeldBytes:
    """Counts the bytes of all bodies that are in memory."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._all = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """Yields a function that counts bytes of one request, until it has ended, or raises TooMuchHeldError."""
        own = 0

        def take(count: int) -> None:
            nonlocal own
            if self._all + count > self._most:
                raise TooMuchHeldError
            self._all += count
            own += count

        try:
            yield take
        finally:
            self._all -= own


async def _arrived(receive: Any, take: Callable[[int], None]) -> bytes | Refusal | Response | None:
    """The whole body, or the response if it takes too long or too much room; None if the client disconnected."""
    try:
        with anyio.fail_after(BODY_SECONDS):
            return await _body(receive, take)
    except TimeoutError:
        return PlainTextResponse("The body did not arrive in time.", 408)
    except TooMuchHeldError:
        text = "This server holds too many large requests. Try again in a moment."
        return PlainTextResponse(text, 503, {"retry-after": "1"})


async def _body(receive: Any, take: Callable[[int], None]) -> bytes | Refusal | None:
    """The whole body; None if the client disconnected."""
    body, skipped = bytearray(), b""
    while True:
        event = await receive()
        if event["type"] != "http.request":
            return None
        part = event.get("body", b"")
        if skipped or len(body) + len(part) > MAX_MESSAGE_BYTES:
            skipped = part or skipped
        else:
            take(len(part))
            body += part
        if not event.get("more_body"):
            return (
                too_large(bytes(body[:MAX_ID_SEARCH_BYTES]), skipped[-MAX_ID_SEARCH_BYTES:]) if skipped else bytes(body)
            )


def _readable(body: bytes) -> bytes | Refusal:
    """The body in a form that the SDK's reader accepts, or the refusal."""
    read = read_message(body)
    if isinstance(read, Refusal):
        return read
    return _with_placeholders(read) or body.removeprefix(BYTE_ORDER_MARK)


def _with_placeholders(message: JSONRPCMessage) -> bytes | None:
    """The call with placeholders for lone surrogates in its arguments; None if there are none."""
    if not isinstance(message, JSONRPCRequest) or message.params is None or message.method != "tools/call":
        return None
    arguments = message.params.get("arguments")
    if not isinstance(arguments, dict) or not has_lone_surrogate(arguments):
        return None
    params = {**message.params, "arguments": {**with_placeholders(arguments), HALVES: True}}
    return written(message.model_copy(update={"params": params}))


def _with_length(scope: Any, length: int) -> Any:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}
