"""The socket that our HTTP servers listen on."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx2
import pytest

from contextstash.web import _listening, serving


async def test_a_response_in_two_parts_does_not_wait_for_an_acknowledgement() -> None:
    without_delay: list[int] = []

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        without_delay.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    with _listening("127.0.0.1", 0) as listener:
        server = await asyncio.start_server(answer, sock=listener)
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        assert await reader.read() == b""
        writer.close()
        server.close()
    assert without_delay == [1]


def test_a_server_beside_a_client_that_cannot_start_refuses_it_and_logs_no_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app() -> Any:
        raise RuntimeError("of a session")

    with serving(app, {}, 30) as port, pytest.raises(httpx2.TransportError):
        httpx2.get(f"http://127.0.0.1:{port}/", timeout=30)
    assert "the server has ended: RuntimeError" in caplog.text
    assert "of a session" not in caplog.text
