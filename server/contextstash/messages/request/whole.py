"""A message list inside a whole request, and the request's other fields that affect it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.messages.breakpoints import BREAKPOINT_KEY, count_breakpoints
from contextstash.messages.detection import fitting_format
from contextstash_storage.records import Native

LIST_KEYS = ("messages", "input", "contents")
"""The field with the messages of a request: Anthropic and Chat Completions, Responses, Gemini."""

SERVER_STATE_KEYS = ("previous_response_id", "conversation")
"""Fields of a Responses request that continue a conversation stored by OpenAI."""


def format_of(request: Mapping[str, Any], natives: Sequence[Native]) -> str:
    """The name of the format of a request's messages. If they are plain text, which fits any format, the other fields
    decide. Raises BadMessageError if the messages match no format."""
    return fitting_format(natives, _hinted(request) if natives else None)


def _hinted(request: Mapping[str, Any]) -> str | None:
    if isinstance(request.get("input"), list):
        return "openai-responses"
    if isinstance(request.get("contents"), list):
        return "gemini"
    tools = _blocks(request.get("tools"))
    of_anthropic = any(key in request for key in ("system", "anthropic_version", "stop_sequences"))
    return "anthropic" if of_anthropic or any("input_schema" in tool for tool in tools) else None


def kept_elsewhere(request: Mapping[str, Any]) -> str | None:
    """The field with which the request continues a conversation that the provider stores; None if the request contains
    all its messages."""
    return next((key for key in SERVER_STATE_KEYS if request.get(key) is not None), None)


def marks_beside(request: Mapping[str, Any]) -> int:
    """Number of cache breakpoints outside the messages: in tools and system prompt, and the automatic one that moves
    along with the conversation."""
    return (
        count_breakpoints(_blocks(request.get("tools")))
        + count_breakpoints(_blocks(request.get("system")))
        + (request.get(BREAKPOINT_KEY) is not None)
    )


def _blocks(value: object) -> list[Any]:
    return [block for block in value if isinstance(block, dict)] if isinstance(value, list) else []
