"""Rendered templates: every text is escaped."""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from contextstash import __version__
from contextstash.display.template_filters import environment

MESSAGES_ABOVE = 5
"""Messages that a page shows above the one that it is opened for."""


def page(request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
    """The response with a rendered page."""
    text = _environment().get_template(name).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


@cache
def _environment() -> Environment:
    made = environment("contextstash.pages")
    made.globals |= {"link": _link, "message_link": _message_link, "version": __version__}
    return made


def _link(*parts: object, **query: object) -> str:
    """The address of a page: each part is one segment, with any characters quoted."""
    address = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{address}?{urlencode(given)}" if given else address


def _message_link(session_id: str, seq: int) -> str:
    """The address of a message among the others of its session."""
    return f"{_link('sessions', session_id, 'messages', first=max(0, seq - MESSAGES_ABOVE))}#m{seq}"
