"""Access to the pages: a token, the server's own host names only, no foreign contents, no forged forms."""

from __future__ import annotations

import hmac
import math
import re
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextstash.ui.browsers import Visit, Visits
from contextstash.ui.forms import Forms
from contextstash.web.access_tokens import TokenVerification, digest
from contextstash.web.asgi_bodies import replayed
from contextstash.web.host_names import OwnHosts
from contextstash.web.request_limits import DEFAULT_RATE_LIMIT, Buckets, ConcurrencyLimit

COOKIE = "contextstash"

MAX_ENTRANCE_BYTES = 1_000
"""Of the form that enters a token: a token has 47 characters."""

MAX_ACTION_BYTES = 1_000_000
"""Of a form of a page: a restoration names handles of some 15 bytes, as many as a session has outputs; a larger form is
refused."""

MAX_PAGES_OF_OWNER = 50
"""Pages that are made for one owner at a time: each browser asks for a few. Further requests get 429."""

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


Tokens = Callable[[], Awaitable[TokenVerification]]
"""Returns the verification of tokens with which others than this machine's user may enter."""


class Guard:
    """ASGI middleware. The first request passes the token in the address and gets a cookie for the following ones: only
    the owner of the database may see the pages, also on a machine with other users. With `tokens`, the owner of a token
    enters it in a form, and sees the sessions that it gives access to. The application finds the Visit in the scope.
    """

    def __init__(
        self,
        app: ASGIApp,
        token: str,
        path: str,
        hosts: OwnHosts,
        tokens: Tokens | None = None,
        once: str | None = None,
    ) -> None:
        """`once` opens the pages like the token, but a single time: other users of the machine see the address with
        which a browser is started."""
        self._app = app
        self._token = token
        self._once = once
        # Not by the token: browsers send a host's cookies to all its ports, and another server there could keep it.
        self._visits = Visits()
        self._path = path
        self._hosts = hosts
        self._tokens = tokens
        self._entrances, self._actions = Forms(), Forms()  # strangers' forms cannot hold up users'
        self._rate, self._places = Buckets(DEFAULT_RATE_LIMIT), ConcurrencyLimit(MAX_PAGES_OF_OWNER)

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

        request = Request(scope, receive)
        refused = self._foreign(request) or await self._entered(request) or await self._denied(request)
        if refused is not None:
            await refused(scope, receive, send_guarded)
            return
        with self._places.take(scope["visit"].owner) as is_free:
            await (self._passed if is_free else _too_many())(scope, receive, send_guarded)

    async def _passed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application respond, to a form when it has arrived."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        form = await self._actions.read(Request(scope, receive), MAX_ACTION_BYTES)
        if isinstance(form, bytes):
            await self._app(scope, replayed(form, receive), send)
        else:
            await form(scope, receive, send)

    def _foreign(self, request: Request) -> Response | None:
        """The refusal of a request to another server's name, or from another site."""
        host = request.headers.get("host", "")
        if not self._hosts.has_host(host):
            return PlainTextResponse("These pages are not served under this name.", 421)
        origin = request.headers.get("origin")
        if request.method not in ("GET", "HEAD") and origin is not None and urlsplit(origin).netloc != self._name(host):
            return PlainTextResponse("This form was sent from another site.", 403)
        return None

    async def _entered(self, request: Request) -> Response | None:
        """The response to a request that brings a valid token; None if it does not."""
        given = request.query_params.get("token")
        if given is not None and hmac.compare_digest(given.encode(), self._token.encode()):
            return self._set_cookie(request, Visit())
        if given is not None and self._once and hmac.compare_digest(given.encode(), self._once.encode()):
            self._once = None
            return self._set_cookie(request, Visit())
        if self._tokens is None or request.method != "POST" or request.url.path != f"{self._path}/enter":
            return None
        form = await self._entrances.read(request, MAX_ENTRANCE_BYTES)
        if isinstance(form, Response):
            return form
        secret = _token_in(form)
        token = await (await self._tokens()).verify(secret)
        if token is None:
            return _entrance(self._path, "This token is not valid.")
        return self._set_cookie(request, Visit(token.owner, token.scopes, digest(secret)))

    async def _denied(self, request: Request) -> Response | None:
        """The refusal of a request without a visit, or outside its scopes; None if it may pass."""
        visit = self._visits.get(request.cookies.get(_cookie(self._name(request.headers["host"])), ""))
        if visit is None or not await self._is_valid(visit):
            if self._tokens is not None:
                return _entrance(self._path, "Enter a token, or open the address that contextstash printed.")
            return PlainTextResponse("Open the address that contextstash printed: it contains the token.", 401)
        if wait := self._rate.take(visit.owner):
            return _too_many(wait)
        needed = "read" if request.method in ("GET", "HEAD") else "write"
        if needed not in visit.scopes:
            return PlainTextResponse(f"This needs the scope {needed}, which your token does not have.", 403)
        request.scope["visit"] = visit
        return None

    async def _is_valid(self, visit: Visit) -> bool:
        """Whether the token of a visit still is."""
        if visit.sha256 is None or self._tokens is None:
            return visit.sha256 is None
        return await (await self._tokens()).verify_digest(visit.sha256) is not None

    def _name(self, host: str) -> str:
        """A Host header as browsers write it, without the port that is meant anyway."""
        return self._hosts.public if self._hosts.public is not None and self._hosts.is_public(host) else host

    def _set_cookie(self, request: Request, visit: Visit) -> Response:
        """Redirect to the same address without the token, which would stay in the browser's history."""
        rest = QueryParams([(name, value) for name, value in request.query_params.multi_items() if name != "token"])
        target = request.url.replace(query=str(rest)).path + (f"?{rest}" if rest else "")
        if request.method == "POST":
            target = f"{self._path}/"
        name, host = new_token(), self._name(request.headers["host"])
        self._visits.keep(name, visit)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            _cookie(host),
            name,
            httponly=True,
            samesite="strict",
            secure=host == self._hosts.public,
            path=self._path or "/",
        )
        return response


def _too_many(wait: float = 1.0) -> Response:
    """The refusal of one request too many of an owner."""
    headers = {"retry-after": str(math.ceil(wait))}
    return PlainTextResponse("Too many requests for these pages. Try again in a moment.", 429, headers)


def _token_in(form: bytes) -> str:
    """The token in the body of a form; empty if there is none."""
    return parse_qs(form.decode("ascii", "replace")).get("token", [""])[0].strip()


def _entrance(path: str, text: str) -> Response:
    """The page with the form for a token."""
    return HTMLResponse(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>contextstash</title><p>{text}</p>'
        f'<form method="post" action="{path}/enter"><label>Token <input name="token" type="password" required'
        ' autocomplete="current-password"></label> <button>Enter</button></form></html>',
        401,
    )


def _cookie(host: str) -> str:
    """The name of the cookie, with the port: browsers send a host's cookies to all its ports."""
    port = re.search(":([0-9]+)$", host)  # not in `[::1]`, whose colons belong to the address
    return f"{COOKIE}-{port[1]}" if port else COOKIE


def new_token() -> str:
    """A random token of 24 bytes: 192 bits, more than the 128 that cannot be guessed."""
    return secrets.token_urlsafe(24)
