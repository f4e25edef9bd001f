"""Chat sessions of exact sizes, for walking thresholds one below, at, and one above."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash_storage.records import Native


def user(characters: int) -> Native:
    """A user message of so many characters."""
    return {"role": "user", "content": "u" * characters}


def reply(characters: int) -> Native:
    """An assistant message of so many characters."""
    return {"role": "assistant", "content": "r" * characters}


def round_of(place: int, text: str, *, tool: str = "bash", argument: str = "") -> list[Native]:
    """A tool call and its result; without `argument` the call takes 16 characters, name and arguments together."""
    arguments = f'{{"path":"{argument}"}}' if argument else f'{{"n":"{place:06}"}}'
    call = {"id": f"call_{place:06}", "type": "function", "function": {"name": tool, "arguments": arguments}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": text},
    ]


def rounds(sizes: Sequence[int], *, tool: str = "bash") -> list[Native]:
    """Tool calls whose results have so many characters each, every one different."""
    natives: list[Native] = []
    for place, size in enumerate(sizes):
        natives += round_of(place, (f"{place:04}" * (size // 4 + 1))[:size], tool=tool)
    return natives


def results(natives: Sequence[Native]) -> list[str]:
    """What the tool messages say."""
    return [native["content"] for native in natives if native["role"] == "tool"]


def called(number: int, tool: str, arguments: Mapping[str, Any], output: str, said: str | None = None) -> list[Native]:
    """A call of a tool with these arguments, before which the agent says something, and its output."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"type": "function", "id": f"c{number}", "function": function}
    return [
        {"role": "assistant", "content": said, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]
