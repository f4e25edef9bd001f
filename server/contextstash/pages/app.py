"""The pages as an ASGI application, and its server: for this machine's user only."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextstash.pages.pages import Pages
from contextstash.pages.templates import page
from contextstash.web.loopback import serve
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self';"
        " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def serve_ui(open_stash: Callable[[], Awaitable[Stash]], port: int, opened: Callable[[str], None]) -> None:
    """Serve the pages on this machine until a signal stops the server; `opened` gets an address to open in a browser,
    which works once. Raises BadInputError if the port cannot be used."""
    token, once = secrets.token_urlsafe(24), secrets.token_urlsafe(24)  # 192 bits

    async def app() -> Any:
        stash = await open_stash()

        @asynccontextmanager
        async def closing(_: Any) -> AsyncIterator[None]:
            async with stash:
                yield

        made = build_ui(stash, token, once=once)
        made.router.lifespan_context = closing
        return made

    def announce(address: str) -> str:
        opened(f"{address}/?token={once}")
        return f"contextstash shows its sessions at {address}/?token={token}"

    serve(app, "127.0.0.1", port, announce)


def build_ui(stash: Stash, token: str, *, once: str | None = None) -> Starlette:
    """The pages of a stash, for a client that has the token, or is the first to bring `once`. They change nothing."""
    pages = Pages(stash)
    routes = [
        Route("/", pages.sessions),
        Route("/costs", pages.costs),
        Route("/search", pages.search),
        Route("/outputs/{handle}", pages.output),
        Route("/sessions/{session_id}", pages.session),
        Route("/sessions/{session_id}/messages", pages.messages),
        Mount("/static", StaticFiles(packages=[("contextstash.display", "static")])),
    ]
    guard = Middleware(Guard, token=token, once=once)
    errors = dict.fromkeys((ContextstashError, HTTPException, Exception), _error)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=errors)


class Guard:
    """ASGI middleware. The first request passes the token in the address and gets a cookie for the following ones: only
    the owner of the database may see the pages, also on a machine with other users."""

    def __init__(self, app: ASGIApp, token: str, once: str | None = None) -> None:
        """`once` opens the pages like the token, but a single time: other users of the machine see the address with
        which a browser is started."""
        self._app = app
        self._tokens = {token, *([once] if once else [])}
        self._once = once
        # Not the token: browsers send a host's cookies to all its ports, and another server there could keep it.
        self._cookie = secrets.token_urlsafe(24)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await (self._answer(Request(scope)) or self._app)(scope, receive, send_guarded)

    def _answer(self, request: Request) -> Response | None:
        """The refusal of a request, or the redirection of one that brings the token, without the token, which would
        stay in the browser's history; None if the request may see the pages."""
        port = re.search(":([0-9]+)$", request.headers["host"])  # not in `[::1]`, whose colons belong to the address
        cookie = f"contextstash-{port[1]}" if port else "contextstash"  # browsers send it to all ports of a host
        given = request.query_params.get("token", "")
        known = [token for token in self._tokens if hmac.compare_digest(given.encode(), token.encode())]
        if known:
            self._tokens -= {self._once} & set(known)
            response = RedirectResponse(request.url.remove_query_params("token").replace(scheme="", netloc=""), 303)
            response.set_cookie(cookie, self._cookie, httponly=True, samesite="strict", path="/")
            return response
        if hmac.compare_digest(request.cookies.get(cookie, "").encode(), self._cookie.encode()):
            return None
        return PlainTextResponse("Open the address that contextstash printed: it contains the token.", 401)


def _error(request: Request, error: Exception) -> Response:
    """The page of an error. Of one of contextstash the first sentence says what is wrong; the others say what to call,
    which a page cannot."""
    if isinstance(error, ContextstashError):
        code = 404 if isinstance(error, NotFoundError) else 400 if isinstance(error, BadInputError) else 500
        heading, text = "This cannot be shown", f"{error}".split(". ")[0]
    elif isinstance(error, HTTPException):
        code, heading, text = error.status_code, "Not found", "This page does not exist."
    else:
        code, heading = 500, "Something went wrong"
        text = "This is an error in contextstash. The terminal in which it runs shows it; please report it."
    return page(request, "error.html", code=code, heading=heading, text=text)
