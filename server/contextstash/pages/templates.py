"""Rendered templates: every text is escaped."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from contextstash import __version__
from contextstash.display.template_filters import environment
from contextstash.events.requests import without_host_text
from contextstash.results import ShownMessage
from contextstash.safety.sanitize import one_line

MESSAGES_ABOVE = 5
"""Messages that a page shows above the one that it is opened for."""

MAX_GIST = 200
"""Characters of a message on its line of the outline: more than a line of the widest page."""


def page(request: Request, name: str, *, code: int = 200, **values: Any) -> Response:
    """The response with a rendered page."""
    text = _environment().get_template(name).render(request=request, **values)
    return HTMLResponse(text.encode("utf-8", "replace"), status_code=code)


@cache
def _environment() -> Environment:
    made = environment("contextstash.pages", gist=gist)
    made.globals |= {"link": _link, "message_link": _message_link, "version": __version__}
    return made


def _link(*parts: object, **query: object) -> str:
    """The address of a page: each part is one segment, with any characters quoted."""
    address = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {name: value for name, value in query.items() if value is not None}
    return f"{address}?{urlencode(given)}" if given else address


def _message_link(session_id: str, seq: int) -> str:
    """The address of a message in the outline of its session, opened."""
    return f"{_link('sessions', session_id, 'messages', first=max(0, seq - MESSAGES_ABOVE))}#m{seq}"


@dataclass(frozen=True, slots=True)
class Gist:
    """A message in a line: the beginning of what it says, and the calls that it makes. `look` is `prompt` if a person
    wrote it, `aside` if neither side said anything in it, and empty otherwise."""

    text: str
    look: str


def gist(message: ShownMessage) -> Gist:
    """The line of a message in the outline."""
    said = [one_line(without_host_text(block.text), MAX_GIST) for block in message.blocks if block.type == "text"]
    calls = [block.heading for block in message.blocks if block.type == "tool_call"]
    if words := " · ".join(filter(None, [*said, *calls])):
        return Gist(one_line(words, MAX_GIST), "prompt" if message.role == "user" else "")
    others = (block.text or block.heading for block in message.blocks if block.type != "thinking")
    text = next((line for other in others if (line := one_line(other, MAX_GIST))), "thinking")
    return Gist(text, "" if any(block.type == "tool_result" for block in message.blocks) else "aside")
