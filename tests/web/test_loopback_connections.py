"""Connections on which no request comes are closed, all others are left alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from contextstash.web.loopback import TimedConnection

SECONDS = 0.05


async def slow(scope: Any, _: Any, send: Any) -> None:
    """An application that takes longer than a request may."""
    await asyncio.sleep(6 * SECONDS if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    """The port of a server whose connections have little time."""
    protocol = type("Quick", (TimedConnection,), {"seconds": SECONDS})
    server = uvicorn.Server(uvicorn.Config(slow, port=0, http=protocol, log_config=None, lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn sets it
        await asyncio.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await running


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: a\r\nx: ", b"GET / HTTP/1.1\r\nhost: a\r\n\r\nGET / "]
)
async def test_a_connection_without_a_whole_request_is_closed(sent: bytes) -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        async with asyncio.timeout(30):
            read = await reader.read()
        assert read.count(b"200 OK") == sent.count(b"\r\n\r\n")
        writer.close()


async def test_a_request_may_take_its_time_and_the_next_one_too() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n")
            async with asyncio.timeout(30):
                assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(3 * SECONDS)  # idle between two requests, which uvicorn limits itself
        writer.close()
