"""The pages as an ASGI application for one stash."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from contextstash.display import style_sheet
from contextstash.ui.guard import Guard, new_token
from contextstash.ui.pages import Pages
from contextstash.ui.templates import Templates
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

if TYPE_CHECKING:
    from contextstash.service.waiting import OpenedStash


def build_ui(stash: OpenedStash, token: str, *, path: str = "") -> Starlette:
    """The pages, to be served at `path`. A client that has the token may read and change the sessions."""
    templates = Templates(path, form_token=new_token())
    pages = Pages(stash, templates)
    routes = [
        Route("/", pages.sessions, name="sessions"),
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
    return Starlette(
        routes=routes,
        middleware=[Middleware(Guard, token=token, path=path)],
        exception_handlers={ContextstashError: _error_page(templates), 404: _missing_page(templates)},
    )


async def _look(_: Request) -> Response:
    return Response(style_sheet(), media_type="text/css")


def _error_page(templates: Templates) -> Callable[[Request, Exception], Response]:
    def page(request: Request, error: Exception) -> Response:
        code = 404 if isinstance(error, NotFoundError) else 400 if isinstance(error, BadInputError) else 500
        heading = "Not found" if code == 404 else "This cannot be done" if code == 400 else "Something went wrong"
        return templates.page(request, "error.html", code=code, heading=heading, text=str(error))

    return page


def _missing_page(templates: Templates) -> Callable[[Request, Exception], Response]:
    def page(request: Request, _: Exception) -> Response:
        return templates.page(request, "error.html", code=404, heading="Not found", text="This page does not exist.")

    return page
