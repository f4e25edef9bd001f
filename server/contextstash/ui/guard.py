"""Access to the pages: a token, local host names only, no foreign contents, no forged forms."""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "contextstash"

# Another name that resolves to this machine could belong to a site that attacks by DNS rebinding.
HOSTS = ("127.0.0.1", "localhost", "[::1]")

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
    """ASGI middleware. The first request passes the token in the address and gets a cookie with it: only the owner of
    the database may see the pages, also on a machine with other users.
    """

    def __init__(self, app: ASGIApp, token: str, path: str) -> None:
        self._app = app
        self._token = token
        # Not the token: browsers send a host's cookies to all its ports, and another server there could keep it.
        self._visit = new_token()
        self._path = path

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

        refused = self._refused(Request(scope))
        await (refused or self._app)(scope, receive, send_guarded)

    def _refused(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if not _is_own_host(host):
            return PlainTextResponse("These pages are served only under 127.0.0.1, localhost and [::1].", 421)
        origin = request.headers.get("origin")
        if request.method not in ("GET", "HEAD") and origin is not None and urlsplit(origin).netloc != host:
            return PlainTextResponse("This form was sent from another site.", 403)
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self._token.encode()):
            return self._set_cookie(request)
        if not hmac.compare_digest(request.cookies.get(_cookie(host), "").encode(), self._visit.encode()):
            return PlainTextResponse("Open the address that contextstash printed: it contains the token.", 401)
        return None

    def _set_cookie(self, request: Request) -> Response:
        """Redirect to the same address without the token, which would stay in the browser's history."""
        rest = QueryParams([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        target = request.url.replace(query=str(rest)).path + (f"?{rest}" if rest else "")
        response = RedirectResponse(target, 303)
        response.set_cookie(
            _cookie(request.headers["host"]), self._visit, httponly=True, samesite="strict", path=self._path or "/"
        )
        return response


def _cookie(host: str) -> str:
    """The name of the cookie, with the port: browsers send a host's cookies to all its ports."""
    return f"{COOKIE}-{host.rsplit(':', 1)[-1]}" if ":" in host else COOKIE


def new_token() -> str:
    """A random token of 24 bytes: 192 bits, more than the 128 that cannot be guessed."""
    return secrets.token_urlsafe(24)


def _is_own_host(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if host.rsplit(":", 1)[-1].isdecimal() else host
    return name in HOSTS
