"""The pages as an ASGI application, and its server: for this machine's user only. Every text in them is escaped."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from contextstash import __version__
from contextstash.display import in_page, project_name, readable_arguments
from contextstash.safety.sanitize import amount, counted
from contextstash.web import serve
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


def serve_ui(open_stash: Callable[[], Awaitable[Stash]], port: int, opened: Callable[[str], object]) -> None:
    """Serve the pages on this machine until a signal stops the server; `opened` gets an address to open in a browser,
    which works once. Raises BadInputError if the port cannot be used."""
    token, once = secrets.token_urlsafe(24), secrets.token_urlsafe(24)  # 192 bits

    @asynccontextmanager
    async def app() -> AsyncIterator[ASGIApp]:
        async with await open_stash() as stash:
            yield build_ui(stash, token, once=once)

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
    the owner of the database may see the pages, also on a machine with other users. `once` opens them like the token,
    but a single time: other users of the machine see the address with which a browser is started."""

    def __init__(self, app: ASGIApp, token: str, once: str | None = None) -> None:
        self._app = app
        self._tokens = {token, *([once] if once else [])}
        self._once = once
        # Not the token: browsers send a host's cookies to all its ports, and another server there could keep it.
        self._cookie = secrets.token_urlsafe(24)
        self._name = f"contextstash-{secrets.token_hex(4)}"  # for the same reason: two of them may be open

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send_guarded)

    def _refusal(self, request: Request) -> Response | None:
        """The refusal of a request, or the redirection of one that brings the token, without the token, which would
        stay in the browser's history; None if the request may see the pages."""
        given = request.query_params.get("token", "")
        known = [token for token in self._tokens if hmac.compare_digest(given.encode(), token.encode())]
        if known:
            self._tokens -= {self._once} & set(known)
            response = RedirectResponse(request.url.remove_query_params("token").replace(scheme="", netloc=""), 303)
            response.set_cookie(self._name, self._cookie, httponly=True, samesite="strict", path="/")
            return response
        if hmac.compare_digest(request.cookies.get(self._name, "").encode(), self._cookie.encode()):
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


RECENT_DAYS = 30
"""Days of the first of the two receipts."""

SESSIONS_SHOWN, MESSAGES_SHOWN, OUTPUT_TOKENS, MAX_HITS = 25, 100, 8_000, 50
"""They bound a page; the rest is on the next one. The last is the maximum of the service."""


class Pages:
    """The handlers of all pages."""

    def __init__(self, stash: Stash) -> None:
        self._stash = stash

    async def sessions(self, request: Request) -> Response:
        """The sessions, the one with the newest message first."""
        found = await self._stash.list_sessions(limit=SESSIONS_SHOWN, cursor=request.query_params.get("after"))
        return page(request, "sessions.html", lines=found.sessions, next_cursor=found.next_cursor)

    async def costs(self, request: Request) -> Response:
        """What was billed and what was saved, in the last days and in all."""
        since = datetime.now(UTC).date() - timedelta(days=RECENT_DAYS)
        receipts = {f"Since {since}": await self._stash.receipt(since=since), "All": await self._stash.receipt()}
        return page(request, "costs.html", receipts=receipts)

    async def session(self, request: Request) -> Response:
        """One session: how full its window is, now and over time, and its changes."""
        session_id = request.path_params["session_id"]
        return page(
            request,
            "session.html",
            line=await self._stash.line_of(await self._stash.read_session(session_id)),
            status=await self._stash.context_status(session_id),
            receipt=await self._stash.receipt(session_id),
            timeline=await self._stash.timeline(session_id),
        )

    async def messages(self, request: Request) -> Response:
        """A range of the history with what the model sees of it; or, by `message`, one message whole."""
        session_id = request.path_params["session_id"]
        session = await self._stash.read_session(session_id)
        total = session.counters.messages
        only = _number(request, "message", -1)
        if only >= total:
            raise NotFoundError(f"Session {session_id} has no message {only}: it has {total:,}.")
        size = MESSAGES_SHOWN if only < 0 else 1
        first = _number(request, "first", max(0, total - size)) if only < 0 else only
        first = max(0, min(first, total - 1))
        shown = await self._stash.read_messages(session_id, first=first, limit=size, shown=True)
        return page(
            request,
            "messages.html",
            line=await self._stash.line_of(session),
            page=shown,
            first=first,
            summaries={summary.first_seq: summary for summary in shown.summaries or ()},
            is_whole=only >= 0,
            earlier=max(0, first - MESSAGES_SHOWN) if first else None,
            last=max(0, total - MESSAGES_SHOWN),
        )

    async def output(self, request: Request) -> Response:
        """A page of an archived output."""
        handle, session_id = request.path_params["handle"], request.query_params.get("session")
        offset = max(1, _number(request, "offset", 1))
        found = await self._stash.get_archived_output(
            handle, session_id=session_id, offset=offset, max_tokens=OUTPUT_TOKENS, masked=True
        )
        place, output = await self._stash.find_output(handle, session_id)
        return page(request, "output.html", page=found, place=place, seq=output.seq, session_id=session_id)

    async def search(self, request: Request) -> Response:
        """The search results for some words, in all sessions or in one."""
        query, session_id = request.query_params.get("q", ""), request.query_params.get("session") or None
        found = None
        named = {session_id} - {None}
        if query.strip():
            found = await self._stash.search_history(query, session_id=session_id, limit=MAX_HITS, unseen_first=False)
            named |= {hit.session_id for hit in found.hits}
        sessions = {each: await self._stash.line_of(await self._stash.read_session(str(each))) for each in named}
        return page(
            request, "search.html", query=query, found=found, most=MAX_HITS, sessions=sessions, session_id=session_id
        )


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 10 else default


def page(request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
    """The response with a rendered page."""
    text = _templates().get_template(name).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


@cache
def _templates() -> Environment:
    """The templates. A name that is not given is an error."""
    made = Environment(
        loader=PackageLoader("contextstash.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=in_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "thousands": lambda number: f"{number:,}",
        "amount": amount,
        "dollars": dollars,
        "when": lambda stamp: stamp[:16].replace("T", " ") if stamp else "",
        "arguments": readable_arguments,
        "plural": counted,
        "project": project_name,
    }
    made.globals |= {"link": _link, "message_link": _message_link, "version": __version__}
    return made


def dollars(amount_: float | None) -> str:
    """US dollars in cents, whole ones from a hundred on; less than half a cent is shown as nothing."""
    if amount_ is None:
        return "–"
    if abs(amount_) < 0.005:
        return "$0"
    return f"${amount_:,.0f}" if abs(amount_) >= 100 else f"${amount_:,.2f}"


def _link(*parts: object, **query: object) -> str:
    """The address of a page: each part is one segment, with any characters quoted."""
    address = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{address}?{urlencode(given)}" if given else address


MESSAGES_ABOVE = 5
"""Messages that a page shows above the one that it is opened for."""


def _message_link(session_id: str, seq: int) -> str:
    """The address of a message among the others of its session."""
    return f"{_link('sessions', session_id, 'messages', first=max(0, seq - MESSAGES_ABOVE))}#m{seq}"
