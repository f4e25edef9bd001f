"""Host and Origin: what is served answers to its own names alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.responses import PlainTextResponse

from contextstash.web import HostChecks, public_host, serving
from contextstash_storage.errors import BadInputError

LOCAL, PUBLIC = None, public_host("https://stash.example/mcp")
NAMES = {LOCAL: "localhost:3000", PUBLIC: "stash.example"}


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("served")(scope, receive, send)


async def status(public: str | None, host: str, *origins: str, path: str = "/mcp", method: str = "GET") -> int:
    """What a request under this name, and of pages from these origins, gets."""
    transport = httpx2.ASGITransport(HostChecks(answer, public, unchecked=("/healthz",)))
    headers = [("host", host), *(("origin", origin) for origin in origins)]
    async with httpx2.AsyncClient(transport=transport, base_url="http://any") as client:
        return (await client.request(method, path, headers=headers)).status_code


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8787", "[::1]:80", "Stash.Example:443", "stash.example:80"])
async def test_a_server_has_the_names_of_this_machine_and_its_public_one(host: str) -> None:
    assert await status(PUBLIC, host) == 200
    assert await status(LOCAL, host) == (421 if "example" in host.lower() else 200)


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost:3000.evil.com", "localhost.evil.com:80", "127.0.0.1.evil.example", ""),
        *("stash.example.evil.com", "evil-stash.example", "stash.example:8443", "stash.example:443:80"),
    ],
)
async def test_no_name_like_these_is_served(host: str) -> None:
    assert [await status(public, host) for public in NAMES] == [421, 421]
    assert await status(PUBLIC, host, path="/healthz") == 200


@pytest.mark.parametrize(
    "origin",
    [
        *(
            "https://evil.example",
            "null",
            "http://127.0.0.1.evil.example",
            "http://[",
            "http://localhost:3000.evil.com",
        ),
        *("http://stash.example", "https://stash.example.evil.com", "https://stash.example:8443", ""),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_a_page_of_another_site_is_refused(origin: str, method: str) -> None:
    for public, name in NAMES.items():
        assert await status(public, name, origin, method=method) == 403
        assert await status(public, name, "http://localhost", origin, method=method) == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "vscode-file://vscode-app"])
async def test_pages_and_programs_of_this_machine_may_name_their_origin(origin: str) -> None:
    assert await status(LOCAL, "localhost:3000", origin) == 200


@pytest.mark.parametrize("origin", ["https://stash.example", "https://stash.example:443"])
async def test_the_public_pages_may_name_theirs(origin: str) -> None:
    assert (await status(PUBLIC, "stash.example", origin), await status(LOCAL, "localhost", origin)) == (200, 403)


@pytest.mark.parametrize(
    "url", ["http://stash.example", "stash.example", "https://", "https://a@stash.example", "ftp://x"]
)
def test_a_public_address_that_is_not_encrypted_is_refused(url: str) -> None:
    with pytest.raises(BadInputError, match="https://"):
        public_host(url)


def test_a_server_beside_a_client_that_cannot_start_refuses_it_and_logs_no_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @asynccontextmanager
    async def app() -> AsyncIterator[Any]:
        raise RuntimeError("of a session")
        yield

    with serving(app, {}, 30) as port, pytest.raises(httpx2.TransportError):
        httpx2.get(f"http://127.0.0.1:{port}/", timeout=30)
    assert "the server has ended: RuntimeError" in caplog.text
    assert "of a session" not in caplog.text
