"""The tools with which a model reads again what left its window, in each provider's form.

    request = await session.request(messages, tools=[*tools, *session.tools()])
    ...
    output = await session.call_tool(call.name, call.input)

The output is None if the call is for one of the program's own tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from contextstash.messages import get_format
from contextstash.messages.base import ToolSchema
from contextstash.operations import get_archived_output, search_history
from contextstash.results import SearchResult
from contextstash_storage.errors import BadInputError

GET_ARCHIVED_OUTPUT, SEARCH_HISTORY = "get_archived_output", "search_history"

_TOOLS = {
    GET_ARCHIVED_OUTPUT: (get_archived_output, ("handle", "offset", "limit", "pattern")),
    SEARCH_HISTORY: (search_history, ("query", "limit")),
}
"""The operation of each tool, by its name, and its arguments that a model is offered; the first is required."""

_TYPES = {str: "string", str | None: "string", int | None: "integer"}


def tool_definitions(format_name: str) -> list[dict[str, Any]]:
    """The definitions to put among the tools of a request."""
    schemas = []
    for name, (operation, offered) in _TOOLS.items():
        given = {each: operation.arguments[each] for each in offered}
        properties = {each: {"type": _TYPES[of.type], "description": of.text} for each, of in given.items()}
        arguments = {"type": "object", "properties": properties, "required": [offered[0]]}
        schemas.append(ToolSchema(name, operation.description, arguments))
    return get_format(format_name).tool_definitions(schemas)


def is_retrieval_tool(name: str) -> bool:
    """Whether a tool of this name is one of these."""
    return name in _TOOLS


def read_arguments(name: str, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call, as a dictionary or as the provider's JSON text. Raises BadInputError if one is unknown,
    missing or of the wrong type."""
    operation, offered = _TOOLS[name]
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInputError(f"The arguments of {name} are not JSON: {error}.") from error
    if not isinstance(given, dict):
        raise BadInputError(f"The arguments of {name} are an object with {', '.join(offered)}.")
    given = {key: value for key, value in given.items() if value is not None}
    unknown = sorted(given.keys() - set(offered))
    if unknown or offered[0] not in given:
        wrong = f"has no argument {unknown[0]}" if unknown else f"needs {offered[0]}"
        raise BadInputError(f"{name} {wrong}; its arguments are {', '.join(offered)}.")
    return {key: _typed(name, key, _TYPES[operation.arguments[key].type], value) for key, value in given.items()}


def _typed(name: str, key: str, kind: str, value: object) -> object:
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # Gemini sends every number as a floating-point one
    if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else str):
        raise BadInputError(f"{key} of {name} is {'a whole number' if kind == 'integer' else 'text'}.")
    return value


def hits_text(result: SearchResult) -> str:
    """The hits as the model reads them: where each was found, and its snippet."""
    if not result.hits:
        return result.note or "Nothing was found. Try fewer or other words."
    shown = [
        f"{f'{hit.handle} (message {hit.seq})' if hit.handle else f'message {hit.seq}'}, {hit.role}:\n{hit.snippet}"
        for hit in result.hits
    ]
    return "\n\n".join([*shown, *([f"[{result.note}]"] if result.note else [])])
