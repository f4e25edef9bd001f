"""The server of the pages, on this machine only."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from contextstash.pages.app import build_ui
from contextstash.pages.guard import new_token
from contextstash.web.loopback import serve

if TYPE_CHECKING:
    from contextstash.stash import Stash


def serve_ui(open_stash: Callable[[], Awaitable[Stash]], port: int, opened: Callable[[str], None]) -> None:
    """Serve the pages on this machine until a signal stops the server; `opened` gets an address to open in a browser,
    which works once. Raises BadInputError if the port cannot be used."""
    token, once = new_token(), new_token()

    async def app() -> Any:
        stash = await open_stash()

        async def opened_stash() -> Stash:
            return stash

        made = build_ui(opened_stash, token, once=once)

        @asynccontextmanager
        async def closing(_: Any) -> AsyncIterator[None]:
            async with stash:
                yield

        made.router.lifespan_context = closing
        return made

    def announce(address: str) -> str:
        opened(f"{address}/?token={once}")
        return f"contextstash shows its sessions at {address}/?token={token}"

    serve(app, "127.0.0.1", port, announce)
