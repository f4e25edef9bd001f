"""A message list inside a whole request: what stands beside the list and bears on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.formats.breakpoints import MARK, MAX_BREAKPOINTS, content_of, count_marks
from contextstash.formats.detection import FORMATS, detect_format
from contextstash_storage.records import Native

LIST_KEYS = ("messages", "input")
"""Where a whole request holds its messages: Anthropic and Chat Completions, Responses."""

KEPT_ELSEWHERE = ("previous_response_id", "conversation")
"""Fields of a Responses request by which it continues what OpenAI itself has kept."""


def format_of(request: Mapping[str, Any], natives: Sequence[Native]) -> str:
    """The name of the format of a request's messages. Plain text could be of any format: the request's other fields
    tell. Raises BadMessageError if the messages are of none."""
    hinted = _hinted(request)
    if hinted and natives and all(FORMATS[hinted].matches(native) > 0 for native in natives):
        return hinted
    return detect_format(natives)


def _hinted(request: Mapping[str, Any]) -> str | None:
    if isinstance(request.get("input"), list):
        return "openai-responses"
    tools = _blocks(request.get("tools"))
    of_anthropic = any(key in request for key in ("system", "anthropic_version", "stop_sequences"))
    return "anthropic" if of_anthropic or any("input_schema" in tool for tool in tools) else None


def kept_elsewhere(request: Mapping[str, Any]) -> str | None:
    """The field by which the request continues a conversation that the provider has kept; None if all is in it."""
    return next((key for key in KEPT_ELSEWHERE if request.get(key) is not None), None)


def marks_beside(request: Mapping[str, Any]) -> int:
    """How many cache breakpoints the request uses outside its messages: in tools and system prompt, and the one that
    moves along by itself."""
    return (
        count_marks(_blocks(request.get("tools")))
        + count_marks(_blocks(request.get("system")))
        + (request.get(MARK) is not None)
    )


def too_many_marks(request: Mapping[str, Any], natives: Sequence[Native]) -> list[str]:
    """What the provider would say to the breakpoints of the whole request, if the list alone has few enough."""
    beside, marks = marks_beside(request), sum(count_marks(content_of(native)) for native in natives)
    if marks > MAX_BREAKPOINTS or marks + beside <= MAX_BREAKPOINTS:
        return []
    return [
        f"The request has {marks + beside} cache breakpoints, {beside} of them beside the messages;"
        f" at most {MAX_BREAKPOINTS} are allowed."
    ]


def _blocks(value: object) -> list[Any]:
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []
