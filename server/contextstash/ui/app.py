"""The pages as an ASGI application for one stash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from contextstash.display import style_sheet
from contextstash.service.bounded_cache import BoundedCache
from contextstash.ui.guard import Guard, Tokens, new_token
from contextstash.ui.pages import Pages
from contextstash.ui.templates import Templates
from contextstash.web.host_names import OwnHosts
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

StashOf = Callable[[str], Awaitable["Stash"]]
"""Returns the stash of an owner's sessions, and opens the database at the first call."""

FAILED = "Something went wrong"

MAX_OWNERS = 64
"""Owners whose pages keep their lists in memory; as many as the server keeps."""


def build_ui(
    stash_of: StashOf,
    token: str,
    *,
    path: str = "",
    hosts: OwnHosts | None = None,
    tokens: Tokens | None = None,
    once: str | None = None,
) -> Starlette:
    """The pages, to be served at `path`. A client that has the token, or is the first to bring `once`, may read and
    change the sessions of this machine's user; with `tokens`, others enter with a token of theirs. `hosts` are the
    server's names."""
    guard = Middleware(Guard, token=token, path=path, hosts=hosts or OwnHosts(), tokens=tokens, once=once)
    return Starlette(routes=[Mount("/", _ByOwner(stash_of, path))], middleware=[guard])


class _ByOwner:
    """ASGI application: the pages of the owner whose visit it is. The memory of one owner's pages, another's
    cannot reach."""

    def __init__(self, stash_of: StashOf, path: str) -> None:
        self._stash_of = stash_of
        self._path = path
        self._pages: BoundedCache[str, Starlette] = BoundedCache(MAX_OWNERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        owner = scope["visit"].owner
        pages = self._pages.get(owner) or pages_of(partial(self._stash_of, owner), self._path)
        await self._pages.set(owner, pages)(scope, receive, send)


def pages_of(open_stash: Callable[[], Awaitable[Stash]], path: str) -> Starlette:
    """The pages of one owner."""
    templates = Templates(path, form_token=new_token())
    pages = Pages(open_stash, templates)
    routes = [
        Route("/", pages.sessions, name="sessions"),
        Route("/costs", pages.costs),
        Route("/search", pages.search),
        Route("/mark", pages.mark),
        Route("/look.css", _look),
        Route("/outputs/{handle}", pages.output),
        Route("/sessions/{session_id}", pages.session),
        Route("/sessions/{session_id}/messages", pages.messages),
        Route("/sessions/{session_id}/messages/{seq:int}", pages.message),
        Route("/sessions/{session_id}/summaries/{summary_id}", pages.summary),
        Route("/sessions/{session_id}/{action}", pages.act, methods=["POST"]),
        Mount("/static", StaticFiles(packages=[("contextstash.ui", "static")])),
    ]
    return Starlette(routes=routes, exception_handlers=_error_pages(templates))


async def _look(_: Request) -> Response:
    return Response(style_sheet(), media_type="text/css")


def _error_pages(templates: Templates) -> dict[Any, Callable[[Request, Exception], Response]]:
    """The page of each kind of error."""

    def page(request: Request, code: int, heading: str, text: str) -> Response:
        return templates.page(request, "error.html", code=code, heading=heading, text=text)

    def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, NotFoundError):
            return page(request, 404, "Not found", str(error))
        is_bad = isinstance(error, BadInputError)
        return page(request, 400 if is_bad else 500, "This cannot be done" if is_bad else FAILED, str(error))

    def missing(request: Request, _: Exception) -> Response:
        return page(request, 404, "Not found", "This page does not exist. The search above looks in all sessions.")

    def failed(request: Request, _: Exception) -> Response:
        text = "This is an error in contextstash. The terminal in which it runs shows the details; please report them."
        return page(request, 500, FAILED, text)

    return {ContextstashError: refused, 404: missing, Exception: failed}
