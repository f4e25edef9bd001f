"""Who may open the pages: a browser that brings a secret, and no page of another site."""

from __future__ import annotations

from typing import Any

import httpx2
from starlette.responses import PlainTextResponse

from contextstash.pages.app import Guard


async def page(scope: Any, receive: Any, send: Any) -> None:
    await PlainTextResponse("a page")(scope, receive, send)


def browser(guard: Guard) -> httpx2.AsyncClient:
    """A browser with cookies of its own."""
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(guard), base_url="http://127.0.0.1")


async def test_the_address_for_the_browser_opens_the_pages_once() -> None:
    """Other users of the machine see it in the list of processes."""
    guard = Guard(page, "secret", once="single")
    async with browser(guard) as client:
        assert (await client.get("/?token=single")).status_code == 303
        assert (await client.get("/")).status_code == 200
    async with browser(guard) as other:
        assert (await other.get("/?token=single")).status_code == 401
        assert (await other.get("/?token=secret")).status_code == 303
