"""Access to the pages: this machine's user only, by a secret in the address, and no foreign page."""

from __future__ import annotations

import hmac
import re
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextstash.web.host_names import OwnHosts

COOKIE = "contextstash"

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


class Guard:
    """ASGI middleware. The first request passes the token in the address and gets a cookie for the following ones: only
    the owner of the database may see the pages, also on a machine with other users."""

    def __init__(self, app: ASGIApp, token: str, once: str | None = None) -> None:
        """`once` opens the pages like the token, but a single time: other users of the machine see the address with
        which a browser is started."""
        self._app = app
        self._token, self._once = token, once
        # Not the token: browsers send a host's cookies to all its ports, and another server there could keep it.
        self._cookie = new_token()

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

        request = Request(scope)
        refused = _foreign(request) or self._entered(request) or self._denied(request)
        await (refused or self._app)(scope, receive, send_guarded)

    def _entered(self, request: Request) -> Response | None:
        """The redirection of a request that brings the token, without the token, which would stay in the browser's
        history; None if it does not."""
        given = request.query_params.get("token")
        if given is None or not self._is_token(given):
            return None
        rest = QueryParams([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        response = RedirectResponse(request.url.path + (f"?{rest}" if rest else ""), 303)
        name = _cookie_name(request.headers["host"])
        response.set_cookie(name, self._cookie, httponly=True, samesite="strict", path="/")
        return response

    def _is_token(self, given: str) -> bool:
        if self._once and hmac.compare_digest(given.encode(), self._once.encode()):
            self._once = None
            return True
        return hmac.compare_digest(given.encode(), self._token.encode())

    def _denied(self, request: Request) -> Response | None:
        """The refusal of a request without the cookie; None if it has it."""
        given = request.cookies.get(_cookie_name(request.headers["host"]), "")
        if hmac.compare_digest(given.encode(), self._cookie.encode()):
            return None
        return PlainTextResponse("Open the address that contextstash printed: it contains the token.", 401)


def _foreign(request: Request) -> Response | None:
    """The refusal of a request to another server's name, or from another site's page."""
    host = request.headers.get("host", "")
    if not OwnHosts().has_host(host):
        return PlainTextResponse("These pages are not served under this name.", 421)
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != host:
        return PlainTextResponse("This request was sent from another site.", 403)
    return None


def _cookie_name(host: str) -> str:
    """The name of the cookie, with the port: browsers send a host's cookies to all its ports."""
    port = re.search(":([0-9]+)$", host)  # not in `[::1]`, whose colons belong to the address
    return f"{COOKIE}-{port[1]}" if port else COOKIE


def new_token() -> str:
    """A random token of 24 bytes: 192 bits, more than the 128 that cannot be guessed."""
    return secrets.token_urlsafe(24)
