"""Rendered templates: every text is escaped, and addresses begin with the path at which the pages are served."""

from __future__ import annotations

from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from contextstash import __version__
from contextstash.display.blocks import Shown, shown
from contextstash.display.words import FILTERS
from contextstash.ui.marked_words import matches
from contextstash.ui.page_words import for_pages


class Templates:
    """The templates. Every form that changes something contains `form_token`."""

    def __init__(self, path: str, form_token: str) -> None:
        self.form_token = form_token
        self._path = path

    def page(self, request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
        """The response with a rendered page."""
        template = self._environment.get_template(name)
        text = template.render(request=request, form_token=self.form_token, **values)
        return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=ChoiceLoader([PackageLoader("contextstash.ui"), PackageLoader("contextstash.display")]),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.filters |= {**FILTERS, "shown": _shown, "matches": matches, "for_pages": for_pages}
        environment.globals |= {"link": self._link, "version": __version__}
        return environment

    def _link(self, *parts: object, **query: object) -> str:
        """The address of a page: each part is one segment, with any characters quoted."""
        address = self._path + "/" + "/".join(quote(str(part), safe="") for part in parts)
        given = {name: value for name, value in query.items() if value is not None}
        return f"{address}?{urlencode(given)}" if given else address


def _shown(text: str, kind: str, max_chars: int) -> Shown:
    return shown(kind, text, max_chars)
