"""Bodies of HTTP requests, checked like lines on stdin: the same input gets the same error on both transports."""

from __future__ import annotations

import logging
from typing import Any

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.transport_security import TransportSecurityMiddleware
from mcp.types import INVALID_REQUEST, JSONRPCMessage, JSONRPCRequest
from starlette.requests import Request
from starlette.responses import Response

from contextstash.mcp.json_rpc import MAX_MESSAGE_BYTES, Refusal, read_message, refusal, too_large, written
from contextstash.mcp.surrogates import HALVES, has_lone_surrogate, with_placeholders

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some programs write it before UTF-8; the SDK's reader refuses it."""

MAX_ID_SEARCH_BYTES = 64 * 1024
"""Bytes at each end of a body that is too large in which its id is searched: libraries write the id first or last."""


class StrictBodies:
    """ASGI middleware in front of the endpoint at one path, behind the authentication. A request that the endpoint
    would refuse is refused before its body is read, or anybody could have megabytes parsed."""

    def __init__(self, app: Any, path: str) -> None:
        self._app = app
        self._path = path
        self._security = TransportSecurityMiddleware()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        if not isinstance(scope.get("user"), AuthenticatedUser):
            await self._app(scope, receive, send)
            return
        refused = await self._security.validate_request(Request(scope), is_post=True)
        if refused is not None:
            await refused(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            return
        read = body if isinstance(body, Refusal) else await anyio.to_thread.run_sync(_readable, body)
        if isinstance(read, Refusal):
            logger.warning("a message from a client was refused: %s", read.kind)
            [reply, *_] = read.replies or (refusal(INVALID_REQUEST, "It is not a JSON-RPC response."),)
            status = 413 if read.kind == "too large" else 400
            await Response(written(reply), status, media_type="application/json")(scope, receive, send)
            return
        await self._app(_with_length(scope, len(read)), _replayed(read, receive), send)


async def _body(receive: Any) -> bytes | Refusal | None:
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


def _replayed(body: bytes, receive: Any) -> Any:
    """An ASGI `receive` that returns this body first, and then the following events."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Any:
        return waiting.pop() if waiting else await receive()

    return replay
