"""The server of the pages, without the MCP server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from contextstash.ui.app import build_ui
from contextstash.ui.guard import new_token
from contextstash.web.loopback import serve

if TYPE_CHECKING:
    from contextstash.service.stash import Stash
    from contextstash.web.access_tokens import TokenVerification
    from contextstash.web.host_names import OwnHosts


class VerifyingStashes(Protocol):
    """The stashes of a server's owners, and the verification of their tokens."""

    async def of(self, owner: str) -> Stash: ...

    async def verification(self) -> TokenVerification: ...


class _Opened:
    """A stash that is already open, in the form that the pages expect."""

    def __init__(self, stash: Stash) -> None:
        self._stash = stash

    async def of(self, _: str) -> Stash:
        return self._stash


def serve_ui(open_stash: Callable[[], Awaitable[Stash]], port: int, opened: Callable[[str], None]) -> None:
    """Serve the pages on this machine until a signal stops the server; `opened` gets an address to open in a browser,
    which works once. Raises BadInputError if the port cannot be used."""
    token, once = new_token(), new_token()

    async def app() -> Any:
        stash = await open_stash()
        made = build_ui(_Opened(stash), token, once=once)

        @asynccontextmanager
        async def closing(_: Any) -> AsyncIterator[None]:
            try:
                yield
            finally:
                await stash.close()

        made.router.lifespan_context = closing
        return made

    def announce(address: str) -> str:
        opened(f"{address}/?token={once}")
        return f"contextstash shows its sessions at {address}/?token={token}"

    serve(app, "127.0.0.1", port, announce)


def mounted_ui(stashes: VerifyingStashes, path: str, hosts: OwnHosts) -> tuple[Any, str]:
    """The pages, to be mounted at a path of another server, and the query that opens those of this machine's user.
    Others enter with a token of theirs."""
    token = new_token()
    return build_ui(stashes, token, path=path, hosts=hosts, tokens=stashes.verification), f"?token={token}"
