"""What goes over the wire: results as structured content and as readable text, in characters that UTF-8 can hold.

Some clients give their model only a result's text, others only its structured content: both hold all of it. In the text
a string with several lines begins on a line of its own and is neither escaped nor indented. Such strings come after the
other fields of their object: what stands after a text of unknown origin could be imitated in it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from mcp.types import CallToolResult, TextContent

from contextstash.base.process import error_trace
from contextstash.safety.sanitize import encodable
from contextstash_storage.errors import ContextstashError

TIMELINE = "contextstash/timeline"
"""The key of the timeline in a result's `_meta`, which only apps see."""

_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""The escapes of JSON: a whole pair, half of a pair, any other."""


def with_whole_characters(document: bytes) -> bytes:
    """JSON that the SDK accepts: a half of a surrogate pair, as a program writes that cuts a text in the middle of an
    emoji, becomes U+FFFD, which is as long."""
    return _ESCAPES.sub(lambda found: b"\\ufffd" if found[1] else found[0], document)


def sendable(value: Any) -> Any:
    """A JSON value that can be sent; the same object if nothing had to be replaced. Raises ValueError for NaN and
    infinities."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    sent = encodable(text)
    return value if sent == text else json.loads(sent)


def answer_of(result: Any) -> CallToolResult:
    """The result of a tool as it is sent."""
    sent, words = sendable(result.as_json()), encodable(result.in_words())
    is_page = hasattr(result, "total_lines")  # of an output, which stands in the words as it is
    text = words if is_page else readable(sent, words)
    timeline = getattr(result, "timeline", None)
    aside = {TIMELINE: timeline.as_json()} if timeline is not None else None
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=sent, _meta=aside)


def readable(value: Mapping[str, Any], headline: str = "") -> str:
    """The fields of an object, one a line, after the headline. A sentence that is in the headline already is left
    out."""
    said = [name for name, each in value.items() if isinstance(each, str) and " " in each and each in headline]
    fields = {name: each for name, each in value.items() if name not in said}
    return "\n".join([*([headline] if headline else []), *_fields(fields, "")])


def _fields(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, each in sorted(value.items(), key=lambda field: _place(field[1])):
        yield from _field(f"{indent}{name}:", each, indent)


def _place(value: Any) -> int:
    """The sort key of a field in its object: short ones first, texts of several lines last."""
    if isinstance(value, str):
        return 2 if "\n" in value else 0
    return 1 if isinstance(value, dict | list) and value else 0


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, str) and "\n" in value:
        yield from (name, value)
    elif not (isinstance(value, dict | list) and value):
        yield f"{name} {_scalar(value)}"
    elif isinstance(value, dict):
        yield name
        yield from _fields(value, f"{indent}  ")
    elif any(isinstance(each, dict | list) or "\n" in str(each) for each in value):
        yield name
        for each in value:
            yield from _item(each, indent)
    else:
        yield f"{name} {', '.join(map(_scalar, value))}"


def _item(value: Any, indent: str) -> Iterator[str]:
    """A member of a list; the first field of an object on its first line."""
    if not (isinstance(value, dict) and value):
        yield from _field(f"{indent}-", value, indent)
        return
    first, *others = _fields(value, f"{indent}  ")
    yield f"{indent}- {first[len(indent) + 2 :]}"
    yield from others


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return "none" if isinstance(value, dict | list) else str(value) if value != "" else '""'


logger = logging.getLogger(__name__)


def told(doing: str, error: Exception) -> str:
    """What a client is told of an error. Of an internal one, whose message may contain session data, only its type and
    place are logged."""
    if isinstance(error, ContextstashError):
        return encodable(str(error))
    logger.error("%s failed: %s", doing, error_trace(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); recorded data is safe."
        " Try once more; if it fails again, continue without it and tell the user to look at the server's log."
    )
