"""Detects the format of a message list: by its messages, and by the tools and the model's name of its request."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, ClassVar

from contextstash.messages.base import Format
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Native


class _Formats(Mapping[str, Format]):
    """The formats by name, each imported once it is needed: a client's hook, which must start fast, needs one."""

    _CLASSES: ClassVar[dict[str, str]] = {
        "openai-chat": "OpenAIChatFormat",
        "openai-responses": "OpenAIResponsesFormat",
        "anthropic": "AnthropicFormat",
        "gemini": "GeminiFormat",
    }

    def __init__(self) -> None:
        self._made: dict[str, Format] = {}

    def __getitem__(self, name: str) -> Format:
        if name not in self._made:
            module = import_module(f"contextstash.messages.{name.replace('-', '_')}")
            self._made[name] = getattr(module, self._CLASSES[name])()
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(self._CLASSES)

    def __len__(self) -> int:
        return len(self._CLASSES)


FORMATS: Mapping[str, Format] = _Formats()
"""If a list matches several equally well, the first one is used."""

_ALIASES = {
    "openai": "openai-chat",
    "chat": "openai-chat",
    "chat-completions": "openai-chat",
    "responses": "openai-responses",
    "codex": "openai-responses",
    "claude": "anthropic",
    "claude-code": "anthropic",
    "google": "gemini",
    "google-genai": "gemini",
    "gemini-contents": "gemini",
}

UNDECIDED = "undecided"
"""The format of a session that was configured before its first message, which decides it. As there is nothing to read
until then, any format does."""


@lru_cache(maxsize=256)
def get_format(name: str) -> Format:
    """The format with this name or alias. Raises BadInputError, which suggests the closest name, if there is none."""
    wanted = "-".join(name.lower().replace("_", " ").replace("-", " ").replace(".", " ").split())
    wanted = _ALIASES.get(wanted, wanted)
    if wanted in FORMATS:
        return FORMATS[wanted]
    if name == UNDECIDED:
        return FORMATS["openai-chat"]
    near = difflib.get_close_matches(wanted, [*FORMATS, *_ALIASES], n=1, cutoff=0.5)  # finds one typing error
    hint = f"Did you mean '{_ALIASES.get(near[0], near[0])}'? " if near else ""
    raise BadInputError(f"There is no message format '{name[:60]}'. {hint}Known: {', '.join(FORMATS)}.")


def detect_format(natives: Sequence[Native]) -> str:
    """The name of the format of the whole list; `openai-chat` if it is plain text that matches several.

    Raises BadMessageError if no format matches; the error names the message and what is wrong with it.
    """
    if not natives:
        raise BadMessageError("The format of an empty list cannot be detected. Pass `format`.")
    fitting = dict.fromkeys(FORMATS, 0.0)
    for place, native in enumerate(natives):
        scores = {name: FORMATS[name].matches(native) for name in fitting}
        left = {name: fitting[name] + score for name, score in scores.items() if score > 0}
        if not left:
            raise BadMessageError(_misfit(natives, place, list(fitting)))
        fitting = left
    return max(fitting, key=lambda name: fitting[name])


def _misfit(natives: Sequence[Native], place: int, before: list[str]) -> str:
    """Why the message at `place` matches none of the formats that the messages before it match."""
    native = natives[place]
    elsewhere = [name for name in FORMATS if FORMATS[name].matches(native) > 0]
    if elsewhere:
        return (
            f"Message {place} is in the format {' or '.join(elsewhere)}, but those before it are in"
            f" {' or '.join(before)}. Record each format in a session of its own, or pass `format`."
        )
    reasons = {}
    for name in before:
        try:
            FORMATS[name].read(native)
        except BadMessageError as error:
            reasons[name] = str(error).rstrip(".")
    details = "; ".join(f"as {name}: {reason}" for name, reason in reasons.items())
    return f"Message {place} is in no known format ({details or 'its parts are of different formats'})."


_MODELS = {"claude": "anthropic", "gemini": "gemini"}
"""The format by the beginning of a model's name. Names with a slash before them belong to gateways, and names of
OpenAI's models to two formats."""


def shown_format(
    natives: Sequence[Native], *, tools: Sequence[Any] | None = None, system: object = None, model: str | None = None
) -> str:
    """The name of the format. Messages of plain text fit several; then tools, system prompt and model decide. Raises
    BadMessageError if the messages fit none."""
    blocks = "anthropic" if _has_blocks(system) else None
    return fitting_format(natives, format_of_tools(tools or ()), blocks, format_of_model(model))


def fitting_format(natives: Sequence[Native], *hints: str | None) -> str:
    """The first of these formats that all messages fit, or else the one that they show. Raises BadMessageError."""
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
