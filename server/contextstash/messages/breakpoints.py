"""Cache breakpoints: which of the recorded breakpoints are sent.

Agents set a breakpoint at the end of each request, so a session accumulates them. Anthropic accepts four in a request,
including those of the tools and the system prompt; a breakpoint as such costs nothing. To find a cached prefix, the
API looks back from each breakpoint, at most 20 blocks, for the end of an earlier request. So the newest ones are the
most useful. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from contextstash_storage.records import Native

MAX_BREAKPOINTS = 4
"""Cache breakpoints that the API accepts in one request (same page)."""

BREAKPOINT_KEY = "cache_control"


def count_breakpoints(blocks: Iterable[object]) -> int:
    """Number of cache breakpoints in a list of blocks (content, system prompt or tools), including nested ones."""
    count = 0
    for block in blocks:
        if isinstance(block, dict):
            count += block.get(BREAKPOINT_KEY) is not None
            if block.get("type") == "tool_result":
                count += count_breakpoints(content_of(block))
    return count


def without_breakpoints(native: Native, first: int) -> Native:
    """The message without the first so many of its breakpoints."""
    numbers = iter(range(count_breakpoints(content_of(native))))
    return {**native, "content": [_without(block, first, numbers) for block in content_of(native)]}


def content_of(native: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message or tool result; empty if its content is a string."""
    content = native.get("content")
    return content if isinstance(content, list) else []


def _without(block: Any, first: int, numbers: Iterator[int]) -> Any:
    if not count_breakpoints([block]):
        return block
    left = dict(block)
    if block.get(BREAKPOINT_KEY) is not None and next(numbers) < first:
        del left[BREAKPOINT_KEY]
    if block.get("type") == "tool_result" and count_breakpoints(content_of(block)):
        left["content"] = [_without(part, first, numbers) for part in content_of(block)]
    return left
