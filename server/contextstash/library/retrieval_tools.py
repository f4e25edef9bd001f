"""The tools with which a model reads again what left its window, in each provider's form.

    request = await session.request(messages, tools=[*tools, *session.tools()])
    ...
    output = await session.call_tool(call.name, call.input)

The output is None if the call is for one of the program's own tools.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from contextstash.messages.base import ToolSchema
from contextstash.messages.detection import get_format
from contextstash.operations import OPERATIONS
from contextstash.results import SearchResult
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.stash import Stash

OFFERED = {
    "get_archived_output": ("handle", "offset", "limit", "pattern"),
    "search_history": ("query", "limit"),
}
"""The operations that are tools, and their arguments that a model is offered; the first is required."""

_TYPES = {str: "string", str | None: "string", int | None: "integer"}


def tool_definitions(format_name: str) -> list[dict[str, Any]]:
    """The definitions to put among the tools of a request."""
    schemas = []
    for name, offered in OFFERED.items():
        operation = OPERATIONS[name]
        given = {each: operation.arguments[each] for each in offered}
        properties = {each: {"type": _TYPES[of.type], "description": of.text} for each, of in given.items()}
        arguments = {"type": "object", "properties": properties, "required": [offered[0]]}
        schemas.append(ToolSchema(name, operation.description, arguments))
    return get_format(format_name).tool_definitions(schemas)


async def carried_out(stash: Stash, session_id: str, name: str, arguments: str | Mapping[str, Any] | None) -> str:
    """The result of a call, whose arguments are a dictionary or the provider's JSON text, as the model reads it. Raises
    BadInputError if an argument is unknown, missing or of the wrong type."""
    operation, offered = OPERATIONS[name], OFFERED[name]
    try:
        given = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments or {})
    except (ValueError, TypeError, RecursionError) as error:
        raise BadInputError(f"The arguments of {name} are not JSON: {error}.") from error
    if not isinstance(given, dict) or given.keys() - set(offered):
        raise BadInputError(f"The arguments of {name} are an object with {', '.join(offered)}.")
    result = await operation.run(stash, **operation.checked({**given, "session_id": session_id}))
    return _hits(result) if isinstance(result, SearchResult) else str(result.in_words())


def _hits(result: SearchResult) -> str:
    """The hits as the model reads them: where each was found, and its snippet."""
    if not result.hits:
        return result.note or "Nothing was found. Try fewer or other words."
    shown = [
        f"{f'{hit.handle} (message {hit.seq})' if hit.handle else f'message {hit.seq}'}, {hit.role}:\n{hit.snippet}"
        for hit in result.hits
    ]
    return "\n\n".join([*shown, *([f"[{result.note}]"] if result.note else [])])
