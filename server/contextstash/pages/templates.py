"""Rendered templates, in which every text is escaped; numbers, times and names as a person reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from contextstash import __version__
from contextstash.display.visible_text import cut, in_page, project_name, readable_arguments
from contextstash.safety.sanitize import amount, counted

MESSAGES_ABOVE = 5
"""Messages that a page shows above the one that it is opened for."""

CENT = 0.005
"""US dollars: less is shown as nothing."""


def thousands(number: float) -> str:
    """A number with separators: 12,345."""
    return f"{number:,}"


def dollars(amount_: float | None) -> str:
    """US dollars in cents, whole ones from a hundred on."""
    if amount_ is None:
        return "–"
    if abs(amount_) < CENT:
        return "$0"
    return f"${amount_:,.0f}" if abs(amount_) >= 100 else f"${amount_:,.2f}"


def when(stamp: str | None) -> str:
    """The date and time of an ISO 8601 time, without seconds."""
    return stamp[:16].replace("T", " ") if stamp else ""


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "thousands": thousands,
    "amount": amount,
    "dollars": dollars,
    "when": when,
    "cut": cut,
    "arguments": readable_arguments,
    "plural": counted,
    "project": project_name,
}


def page(request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
    """The response with a rendered page."""
    text = _environment().get_template(name).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


@cache
def _environment() -> Environment:
    """The templates. A name that is not given is an error."""
    made = Environment(
        loader=PackageLoader("contextstash.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=in_page,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= _FILTERS
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
