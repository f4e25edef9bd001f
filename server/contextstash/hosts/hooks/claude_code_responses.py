"""The texts inside a tool's response, in the shape that Claude Code gives it to its hooks, and put back in it.

A replacement must have the tool's own shape, or Claude Code keeps the original (seen in its versions 2.1.x): Bash an
object with `stdout`, Read one with `file.content`, MCP tools a list of content blocks. Nothing heavy is imported here:
the hook runs after every tool call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

PLACES: dict[str, tuple[tuple[str, ...], ...]] = {
    "Bash": (("stdout",), ("stderr",)),
    "BashOutput": (("stdout",), ("stderr",)),
    "PowerShell": (("stdout",), ("stderr",)),
    "Read": (("file", "content"),),
    "Grep": (("content",),),
    "WebFetch": (("result",),),
}
"""Where the text that the model sees stands in a built-in tool's response."""

PERSISTED = ("persistedOutputPath", "persistedOutputSize")
"""Of a large output Claude Code keeps a copy in a file, and shows that instead of what a hook says."""

MCP_PREFIX = "mcp__"


def texts_of(tool: str, response: Any) -> list[str]:
    """The texts that the model would see, in order; none of a tool whose response has a shape we don't know."""
    found: list[str] = []

    def note(text: str) -> str:
        found.append(text)
        return text

    _walk(tool, copy.copy(response), note)
    return found


def with_texts(tool: str, response: Any, texts: list[str]) -> Any:
    """The response with these texts in the place of its own, all else as it was."""
    changed = copy.deepcopy(response)
    remaining = iter(texts)
    answer = _walk(tool, changed, lambda _: next(remaining))
    if isinstance(answer, dict):
        for key in PERSISTED:
            answer.pop(key, None)
    return answer


def _walk(tool: str, response: Any, change: Callable[[str], str]) -> Any:
    """The response with each text changed, in place if that can be."""
    if isinstance(response, str):
        return change(response)
    if isinstance(response, list):
        _walk_blocks(response, change)
    elif isinstance(response, dict) and tool in PLACES:
        for path in PLACES[tool]:
            _walk_path(response, path, change)
    elif isinstance(response, dict) and isinstance(response.get("content"), list):
        _walk_blocks(response["content"], change)
    return response


def _walk_blocks(blocks: list[Any], change: Callable[[str], str]) -> None:
    for place, block in enumerate(blocks):
        if isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str):
            blocks[place] = {**block, "text": change(block["text"])}


def _walk_path(response: dict[str, Any], path: tuple[str, ...], change: Callable[[str], str]) -> None:
    *folders, name = path
    for folder in folders:
        inner = response.get(folder)
        if not isinstance(inner, dict):
            return
        response[folder] = response = dict(inner)
    if isinstance(response.get(name), str) and response[name]:
        response[name] = change(response[name])
