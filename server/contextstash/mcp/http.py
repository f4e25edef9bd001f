"""Serving many clients over streamable HTTP, on this machine alone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.transport_security import TransportSecuritySettings

from contextstash.loopback import serve
from contextstash.mcp.http_bodies import StrictBodies
from contextstash.mcp.json_rpc import MAX_MESSAGE_BYTES
from contextstash.mcp.lazy import LazyStash, OpenStash
from contextstash.mcp.server import ToolSet, build_server
from contextstash_storage.errors import BadInputError

MAX_BODY_BYTES = 6 * MAX_MESSAGE_BYTES
"""Largest body for the SDK, in bytes: a placeholder for a lone surrogate is six times as long as its escape."""

SECURITY = TransportSecuritySettings(
    allowed_hosts=[f"{name}:*" for name in ("127.0.0.1", "localhost", "[::1]")],
    allowed_origins=[f"http://{name}:*" for name in ("127.0.0.1", "localhost", "[::1]")],
)
"""Which requests are served: those to this machine by a name that no other site can have, and from its own pages. The
SDK's own settings for a server on this machine."""

PAGES = "/ui"
"""The path of the browser pages."""

MakePages = Callable[[LazyStash, str], tuple[Any, str]]
"""Makes the browser pages for a path: their application, and the query of the address that opens them."""


def run_http(
    open_stash: OpenStash,
    tools: ToolSet,
    *,
    host: str,
    port: int,
    path: str,
    pages: MakePages | None = None,
    followed: bool = False,
) -> None:
    """Serve until a signal ends it, with the browser pages next to the endpoint if there are any; `followed` as in
    build_server. Raises BadInputError if the server cannot listen on the address."""
    if not path.startswith("/") or path == PAGES:
        raise BadInputError(f"The path of the endpoint must begin with '/' and must not be {PAGES}.")
    stash = LazyStash(open_stash)
    made = pages(stash, PAGES) if pages else None

    async def app() -> Any:
        endpoint = build_server(stash, tools, followed=followed).streamable_http_app(
            streamable_http_path=path,
            stateless_http=True,
            max_request_body_size=MAX_BODY_BYTES,
            host=host,
            transport_security=SECURITY,
        )
        if made is not None:
            endpoint.mount(PAGES, made[0])
        endpoint.router.lifespan_context = _with_stash(stash, endpoint.router.lifespan_context)
        return StrictBodies(endpoint, path, SECURITY)

    def announce(address: str) -> str:
        watch = f"; to watch it: {address}{PAGES}/{made[1]}" if made else ""
        return f"contextstash serves {address}{path}{watch}"

    serve(app, host, port, announce)


def _with_stash(stash: LazyStash, lifespan: Any) -> Any:
    """The stash stays open between requests, and is closed at the end."""

    @asynccontextmanager
    async def both(app: Any) -> AsyncIterator[Any]:
        async with stash.in_use(), lifespan(app) as state:
            yield state

    return both
