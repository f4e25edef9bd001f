"""Detects the format of a message list: by its messages, and by the tools and the model's name of its request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from contextstash.messages.base import Format
from contextstash.safety.sanitize import did_you_mean
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native

_CLASSES = {
    "openai-chat": ("openai", "OpenAIChatFormat"),
    "openai-responses": ("openai", "OpenAIResponsesFormat"),
    "anthropic": ("anthropic", "AnthropicFormat"),
    "gemini": ("gemini", "GeminiFormat"),
}
"""The module and the class of each format."""

FORMATS = tuple(_CLASSES)
"""The names of the formats. If a list matches several equally well, the first one is used."""

MAX_EXAMINED = 200
"""Messages that are read to find the format of a list; one of another format behind them is refused when it is
recorded."""


@cache
def get_format(name: str) -> Format:
    """The format of this name, imported when it is first needed: a client's hook, which must start fast, needs one.
    Raises BadInputError, which suggests the closest name, if there is none."""
    if name not in _CLASSES:
        raise BadInputError(f"There is no message format '{name[:60]}'. {did_you_mean(name[:60], FORMATS)}")
    module, its_class = _CLASSES[name]
    found: Format = getattr(import_module(f"contextstash.messages.{module}"), its_class)()
    return found


def detect_format(natives: Sequence[Native]) -> str:
    """The name of the format that can read the whole list; if several can, of the one with most messages of its own,
    and `openai-chat` if it is plain text.

    Raises BadMessageError if no format can; the error names the message and what is wrong with it.
    """
    if not natives:
        raise BadMessageError("The format of an empty list cannot be detected. Pass `format`.")
    fitting = dict.fromkeys(FORMATS, 0)
    for place, native in enumerate(natives[:MAX_EXAMINED]):
        reasons = {name: get_format(name).misfit(native) for name in fitting}
        left = [name for name in fitting if reasons[name] is None]
        if not left:
            details = "; ".join(f"as {name}: {str(reason).rstrip('.')}" for name, reason in reasons.items())
            kind = "not in the format of those before it" if place else "in no known format"
            raise BadMessageError(f"Message {place} is {kind} ({details}). A session has messages of one format.")
        fitting = {name: fitting[name] + get_format(name).is_own(native) for name in left}
    return max(fitting, key=lambda name: fitting[name])


_MODELS = {"claude": "anthropic", "gemini": "gemini"}
"""The format by the beginning of a model's name. Names with a slash before them belong to gateways, and names of
OpenAI's models to two formats."""


def shown_format(
    natives: Sequence[Native], *, tools: Sequence[Any] | None = None, system: object = None, model: str | None = None
) -> str:
    """The name of the format. Messages of plain text fit several; then tools, system prompt and model decide. Raises
    BadMessageError if the messages fit none."""
    for hint in (_format_of_request(tools or (), system), format_of_model(model)):
        if hint is not None and not any(map(get_format(hint).misfit, natives[:MAX_EXAMINED])):
            return hint
    return detect_format(natives)


def format_of_model(model: str | None) -> str | None:
    """The format of this model's own API; None if its name does not show one."""
    return next((name for start, name in _MODELS.items() if (model or "").startswith(start)), None)


def _format_of_request(tools: Sequence[Any], system: object) -> str | None:
    """The format of the first tool definition that shows one, or of a system prompt that is a list of blocks, as only
    Anthropic takes it."""
    for tool in (each for each in tools if isinstance(each, Mapping)):
        if "input_schema" in tool:
            return "anthropic"
        if "function_declarations" in tool or "functionDeclarations" in tool:
            return "gemini"
        if tool.get("type") == "function":
            return "openai-chat" if "function" in tool else "openai-responses"
    has_blocks = isinstance(system, list) and any(isinstance(part, Mapping) and "text" in part for part in system)
    return "anthropic" if has_blocks else None
