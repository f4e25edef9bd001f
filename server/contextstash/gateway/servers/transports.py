"""Connections to servers, by stdio or HTTP, with a callback when the connection ends."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp.types import JSONRPCResponse, Tool
from pydantic import ValidationError

from contextstash.gateway.config import HttpServer, StdioServer
from contextstash.gateway.servers.answers import Answers
from contextstash.gateway.servers.process import process_streams

logger = logging.getLogger(__name__)

MAX_TOLD = 5
"""Malformed tools of one list that are told one by one."""


def with_usable_tools(message: Any, server: str) -> Any:
    """The same message; if it lists tools, only with those that can be read. Others are told in the log, by place."""
    answer = message.message if isinstance(message, SessionMessage) else None
    if not isinstance(answer, JSONRPCResponse) or "content" in answer.result:
        return message
    listed = answer.result.get("tools")
    if not isinstance(listed, list):
        return message
    problems = {place: problem for place, tool in enumerate(listed) if (problem := _problem(tool))}
    if problems:
        for place in list(problems)[:MAX_TOLD]:
            logger.warning("server '%s': its tool %d is left out: %s", server, place + 1, problems[place])
        if len(problems) > MAX_TOLD:
            logger.warning("server '%s': %d more tools are left out", server, len(problems) - MAX_TOLD)
        answer.result["tools"] = [tool for place, tool in enumerate(listed) if place not in problems]
    return message


def _problem(tool: Any) -> str | None:
    try:
        read = Tool.model_validate(tool, by_name=False)
    except ValidationError as error:
        first = error.errors()[0]
        return f"{'.'.join(map(str, first['loc'])) or 'tool'}: {first['msg']}"[:200]
    return None if read.input_schema.get("type") == "object" else "its inputSchema is not of type 'object'"


Ended = Callable[[], None]

HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds for connecting and sending, and for the next byte of a response: the SDK's own values."""

MAX_HTTP_BYTES = 1024 * 1024
"""Bytes of one response over HTTP: the SDK's own limit of an event. The SDK parses responses on the event loop."""

HTTP_OK = 200

NOT_COMPRESSED = {"accept-encoding": "identity"}
"""A compressed response is refused: a megabyte of one can hold a gigabyte, and is expanded before it can be counted."""


@asynccontextmanager
async def connected(server: StdioServer | HttpServer, answers: Answers, ended: Ended) -> AsyncIterator[tuple[Any, Any]]:
    """The two message streams to a server; `ended` is called when the server can send nothing more. Raises OSError if
    its program cannot be started."""
    transport = process_streams(server, answers) if isinstance(server, StdioServer) else _address(server)
    passed, received = anyio.create_memory_object_stream[Any](0)

    async def pass_on(read: Any) -> None:
        """Without this, the end of a server between two calls would not be noticed, and one malformed tool would cost
        all others of its list."""
        async with passed:
            with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
                async with read:
                    async for message in read:
                        await passed.send(with_usable_tools(message, answers.server))
            ended()

    async with transport as (read, write), anyio.create_task_group() as group:
        group.start_soon(pass_on, read)
        yield received, write
        group.cancel_scope.cancel()


@asynccontextmanager
async def _address(server: HttpServer) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        httpx2.AsyncClient(
            headers={**server.headers, **NOT_COMPRESSED}, timeout=HTTP_TIMEOUT, event_hooks={"response": [_limit_body]}
        ) as http_client,
        streamable_http_client(server.url, http_client=http_client) as streams,
    ):
        yield streams


async def _limit_body(response: httpx2.Response) -> None:
    """Stop reading a response that is too large or compressed. The SDK limits streams of events itself, event by
    event."""
    compressed = response.headers.get("content-encoding", "identity").strip().lower() not in ("", "identity")
    if compressed or not _is_event_stream(response):
        response.stream = _LimitedBody(response.stream, compressed)


def _is_event_stream(response: httpx2.Response) -> bool:
    """Whether the SDK reads the response event by event; all others it reads whole, redirects and errors too."""
    kind = response.headers.get("content-type", "").strip().lower()
    return response.status_code == HTTP_OK and kind.startswith("text/event-stream")


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, compressed: bool) -> None:
        self._stream = stream
        self._compressed = compressed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._compressed:
            raise httpx2.StreamError("it is compressed, which was not accepted.")
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > MAX_HTTP_BYTES:
                raise httpx2.StreamError(
                    f"it has more than {MAX_HTTP_BYTES:,} bytes, the maximum over HTTP. Request less: a narrower query,"
                    " fewer rows, a page or a part of a file."
                )
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
