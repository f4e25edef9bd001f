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
from contextstash.results import OutputPage, SearchResult
from contextstash_storage.errors import BadInputError

GET_ARCHIVED_OUTPUT, SEARCH_HISTORY = "get_archived_output", "search_history"

MAX_HITS = 20
"""Most hits of one search, about 2,000 tokens."""

_TOOLS: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    GET_ARCHIVED_OUTPUT: (
        "Read a tool output that was replaced by a placeholder or cut, by its handle (out_…): a page of lines, or the"
        " lines that match a pattern.",
        {
            "handle": {"type": "string", "description": "The handle in the placeholder"},
            "offset": {"type": "integer", "description": "First line, from 1"},
            "limit": {"type": "integer", "description": "Number of lines"},
            "pattern": {"type": "string", "description": "Regular expression: only matching lines"},
        },
        ["handle"],
    ),
    SEARCH_HISTORY: (
        "Search everything in this conversation, also what is no longer shown, by words.",
        {
            "query": {"type": "string", "description": "Words to look for"},
            "limit": {"type": "integer", "description": "Number of hits"},
        },
        ["query"],
    ),
}
"""Description, properties and required properties of each tool, by its name."""


def tool_definitions(format_name: str) -> list[dict[str, Any]]:
    """The definitions to put among the tools of a request."""
    schemas = [
        ToolSchema(name, description, {"type": "object", "properties": properties, "required": required})
        for name, (description, properties, required) in _TOOLS.items()
    ]
    return get_format(format_name).tool_definitions(schemas)


def is_retrieval_tool(name: str) -> bool:
    """Whether a tool of this name is one of these."""
    return name in _TOOLS


def read_arguments(name: str, arguments: str | Mapping[str, Any] | None) -> dict[str, Any]:
    """The arguments of a call, as a dictionary or as the provider's JSON text. Raises BadInputError if one is unknown,
    missing or of the wrong type."""
    _, properties, required = _TOOLS[name]
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInputError(f"The arguments of {name} are not JSON: {error}.") from error
    if not isinstance(given, dict):
        raise BadInputError(f"The arguments of {name} are an object with {', '.join(properties)}.")
    given = {key: value for key, value in given.items() if value is not None}
    unknown = sorted(given.keys() - properties.keys())
    missing = [key for key in required if key not in given]
    if unknown or missing:
        wrong = f"has no argument {unknown[0]}" if unknown else f"needs {missing[0]}"
        raise BadInputError(f"{name} {wrong}; its arguments are {', '.join(properties)}.")
    for key, value in given.items():
        given[key] = _typed(name, key, properties[key]["type"], value)
    return given


def _typed(name: str, key: str, kind: str, value: object) -> object:
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)  # Gemini sends every number as a floating-point one
    if isinstance(value, bool) or not isinstance(value, int if kind == "integer" else str):
        raise BadInputError(f"{key} of {name} is {'a whole number' if kind == 'integer' else 'text'}.")
    return value


def page_text(page: OutputPage) -> str:
    """A page of an output as the model reads it: the output as it is, and where to go on."""
    more = [page.note] if page.note else []
    if page.next_offset is not None:
        more.append(f"{page.total_lines:,} lines in all; go on with offset={page.next_offset}.")
    return "\n\n".join([page.text, *(f"[{line}]" for line in more)])


def hits_text(result: SearchResult) -> str:
    """The hits as the model reads them: where each was found, and its snippet."""
    if not result.hits:
        return result.note or "Nothing was found. Try fewer or other words."
    shown = [
        f"{f'{hit.handle} (message {hit.seq})' if hit.handle else f'message {hit.seq}'}, {hit.role}:\n{hit.snippet}"
        for hit in result.hits
    ]
    return "\n\n".join([*shown, *([f"[{result.note}]"] if result.note else [])])
