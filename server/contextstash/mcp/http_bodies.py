"""Bodies of HTTP requests, read as lines on stdin are: the same is taken, the same is refused with the same words."""

from __future__ import annotations

import logging
from typing import Any

import anyio
from mcp.types import INVALID_REQUEST, JSONRPCMessage, JSONRPCRequest
from starlette.responses import Response

from contextstash.mcp.json_rpc import MAX_MESSAGE_BYTES, Refusal, read_message, refusal, too_large, written
from contextstash.mcp.surrogates import HALVES, holds_halves, marked

logger = logging.getLogger(__name__)

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""What some programs put before UTF-8; the SDK's reader takes none."""

ENDS = 64 * 1024
"""Bytes of each end of a body that is too large which are looked through for its id."""


class StrictBodies:
    """ASGI middleware before the endpoint at one path."""

    def __init__(self, app: Any, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path or not _is_json(scope):
            await self._app(scope, receive, send)
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
        await self._app(_with_length(scope, len(read)), _again(read, receive), send)


def _is_json(scope: Any) -> bool:
    """Whether the request says that it is JSON; what says otherwise, the SDK refuses."""
    return any(name == b"content-type" and b"application/json" in value for name, value in scope["headers"])


async def _body(receive: Any) -> bytes | Refusal | None:
    """The whole body; None if the client went away."""
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
            return too_large(bytes(body[:ENDS]), skipped[-ENDS:]) if skipped else bytes(body)


def _readable(body: bytes) -> bytes | Refusal:
    """A body that the SDK's reader takes."""
    read = read_message(body)
    if isinstance(read, Refusal):
        return read
    return _carrying_halves(read) or body.removeprefix(BYTE_ORDER_MARK)


def _carrying_halves(message: JSONRPCMessage) -> bytes | None:
    """The call with marks for the halves of surrogate pairs in its arguments; None if there are none."""
    if not isinstance(message, JSONRPCRequest) or message.params is None or message.method != "tools/call":
        return None
    arguments = message.params.get("arguments")
    if not isinstance(arguments, dict) or not holds_halves(arguments):
        return None
    params = {**message.params, "arguments": {**marked(arguments), HALVES: True}}
    return written(message.model_copy(update={"params": params}))


def _with_length(scope: Any, length: int) -> Any:
    headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(length).encode())]}


def _again(body: bytes, receive: Any) -> Any:
    """What receives this body, and then what comes after it."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Any:
        return waiting.pop() if waiting else await receive()

    return again
