"""The pages as an ASGI application for one stash."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from contextstash.display import style_sheet
from contextstash.pages.guard import Guard, new_token
from contextstash.pages.pages import Pages
from contextstash.pages.templates import Templates
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

if TYPE_CHECKING:
    from contextstash.stash import Stash

FAILED = "Something went wrong"


def build_ui(open_stash: Callable[[], Awaitable[Stash]], token: str, *, once: str | None = None) -> Starlette:
    """The pages. A client that has the token, or is the first to bring `once`, may read and change the sessions."""
    templates = Templates(form_token=new_token())
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
        Mount("/static", StaticFiles(packages=[("contextstash.pages", "static")])),
    ]
    guard = Middleware(Guard, token=token, once=once)
    return Starlette(routes=routes, middleware=[guard], exception_handlers=_error_pages(templates))


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
