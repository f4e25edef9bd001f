"""The way to a server: its process started, or its address reached, and a word when the way ends."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from contextstash.gateway.config import HttpServer, StdioServer
from contextstash.gateway.upstream_lines import use_for_processes

Ended = Callable[[], None]

HTTP_TIMEOUT = httpx2.Timeout(30.0, read=300.0)
"""Seconds for connecting and sending, and for the next byte of an answer: the SDK's own."""


@asynccontextmanager
async def connected(server: StdioServer | HttpServer, ended: Ended) -> AsyncIterator[tuple[Any, Any]]:
    """The two streams to a server; `ended` is called when nothing more can come from it. Raises OSError where its
    program cannot be started."""
    way = _process(server) if isinstance(server, StdioServer) else _address(server)
    async with way as (read, write):
        yield _EndNoticed(read, ended), write


def _process(server: StdioServer) -> Any:
    use_for_processes()
    return stdio_client(
        StdioServerParameters(
            command=server.command,
            args=list(server.args),
            env={**os.environ, **server.env},
            cwd=server.cwd,
            encoding_error_handler="replace",
        )
    )


@asynccontextmanager
async def _address(server: HttpServer) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        httpx2.AsyncClient(headers=dict(server.headers), timeout=HTTP_TIMEOUT) as http_client,
        streamable_http_client(server.url, http_client=http_client) as streams,
    ):
        yield streams


class _EndNoticed:
    """A stream of messages that tells when it ends: of a server that died between two calls nobody else would hear."""

    def __init__(self, stream: Any, ended: Ended) -> None:
        self._stream = stream
        self._ended = ended

    @property
    def last_context(self) -> Any:
        """What the SDK reads of its own streams."""
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        return await self._stream.receive()

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._stream.__anext__()
        except StopAsyncIteration:
            self._ended()
            raise

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.__aexit__(kind, error, trace)
