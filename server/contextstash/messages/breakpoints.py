"""Cache breakpoints: which of the recorded breakpoints are sent.

Agents set a breakpoint at the end of each request, so a session accumulates them. Anthropic accepts four in a request,
including those of the tools and the system prompt; a breakpoint as such costs nothing. To find a cached prefix, the
API looks back from each breakpoint, at most 20 blocks, for the end of an earlier request. So the newest ones are the
most useful. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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


def newest_breakpoints(natives: Sequence[Native], most: int) -> Sequence[Native]:
    """The messages with the breakpoints of the newest ones, at most so many; unchanged if all are within it."""
    counts = [count_breakpoints(content_of(native)) for native in natives]
    if sum(counts) <= most:
        return natives
    left = list(natives)
    for place in range(len(left) - 1, -1, -1):
        most -= counts[place]
        if counts[place] and most < 0:
            left[place] = without_breakpoints(left[place])
    return left


def without_breakpoints(value: Any) -> Any:
    """A message, a block or a list of blocks without the breakpoints in it."""
    if isinstance(value, list):
        return [without_breakpoints(each) for each in value]
    if not isinstance(value, dict):
        return value
    left = {key: each for key, each in value.items() if key != BREAKPOINT_KEY}
    return {**left, "content": without_breakpoints(value["content"])} if content_of(value) else left


def content_of(native: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message or tool result; empty if its content is a string."""
    content = native.get("content")
    return content if isinstance(content, list) else []
