"""Detects the provider's format of a program that does not name it: by its messages, its tools and its model's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.formats import FORMATS, detect_format
from contextstash_storage.records import Native

_MODELS = {"claude": "anthropic", "gemini": "gemini"}
"""The format by the beginning of a model's name. Names with a slash before them belong to gateways, and names of
OpenAI's models to two formats."""


def shown_format(
    natives: Sequence[Native], *, tools: Sequence[Any] | None = None, system: object = None, model: str | None = None
) -> str:
    """The name of the format. Messages of plain text fit several; then tools, system prompt and model decide. Raises
    BadMessageError if the messages fit none."""
    hints = (format_of_tools(tools or ()), "anthropic" if _has_blocks(system) else None, format_of_model(model))
    for hint in hints:
        if hint is not None and all(FORMATS[hint].matches(native) > 0 for native in natives):
            return hint
    return detect_format(natives)


def format_of_model(model: str | None) -> str | None:
    """The format of this model's own API; None if its name does not show one."""
    return next((name for start, name in _MODELS.items() if (model or "").startswith(start)), None)


def format_of_tools(tools: Sequence[Any]) -> str | None:
    """The format of the first tool definition that shows one."""
    for tool in tools:
        if isinstance(tool, Mapping) and (found := _format_of_tool(tool)):
            return found
    return None


def _format_of_tool(tool: Mapping[str, Any]) -> str | None:
    if "input_schema" in tool:
        return "anthropic"
    if "function_declarations" in tool or "functionDeclarations" in tool:
        return "gemini"
    if tool.get("type") == "function":
        return "openai-chat" if "function" in tool else "openai-responses"
    return None


def _has_blocks(system: object) -> bool:
    """Whether a system prompt is a list of blocks, as only Anthropic takes it."""
    return isinstance(system, list) and any(isinstance(part, Mapping) and "text" in part for part in system)
