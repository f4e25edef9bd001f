"""Cache breakpoints: which of the recorded breakpoints are sent.

Agents set a breakpoint at the end of each request, so a session accumulates them. Anthropic accepts four in a request,
including those of the tools and the system prompt; a breakpoint as such costs nothing. To find a cached prefix, the
API looks back from each breakpoint, at most 20 blocks, for the end of an earlier request. So the newest breakpoint is
the most useful one and, if earlier messages were edited, the newest breakpoint before the first edit: up to there the
cache is still valid. Source: https://docs.claude.com/en/docs/build-with-claude/prompt-caching
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from contextstash_storage.records import Native

MAX_BREAKPOINTS = 4
"""Cache breakpoints that the API accepts in one request (same page)."""

BREAKPOINT_KEY = "cache_control"


def sent_breakpoints(places: Sequence[int], most: int, changed: int | None) -> list[int]:
    """The numbers of the breakpoints to send. `places[i]` is the index of the message with breakpoint `i`; `changed` is
    the index of the first message that differs from the recorded one. Returns all if there are few enough."""
    newest = list(range(max(0, len(places) - most), len(places)))
    if changed is None or len(newest) == len(places) or most < 2:
        return newest
    cached = [number for number, place in enumerate(places) if place < changed]
    return newest if not cached or cached[-1] >= newest[0] else [cached[-1], *newest[1:]]


def first_edited(natives: Sequence[Native], recorded: Iterable[Native]) -> int | None:
    """The index of the first message that is not one of the recorded objects; None if all are."""
    known = {id(native) for native in recorded}
    return next((place for place, native in enumerate(natives) if id(native) not in known), None)


def count_breakpoints(blocks: Iterable[object]) -> int:
    """Number of cache breakpoints in a list of blocks (content, system prompt or tools), including nested ones."""
    count = 0
    for block in blocks:
        if isinstance(block, dict):
            count += block.get(BREAKPOINT_KEY) is not None
            if block.get("type") == "tool_result":
                count += count_breakpoints(content_of(block))
    return count


def keep_breakpoints(native: Native, kept: Collection[int]) -> Native:
    """The message without its breakpoints except those in `kept`, which are numbers within the message."""
    numbers = iter(range(count_breakpoints(content_of(native))))
    return {**native, "content": [_keep(block, kept, numbers) for block in content_of(native)]}


def content_of(native: Mapping[str, Any]) -> list[Any]:
    """The blocks of a message or tool result; empty if its content is a string."""
    content = native.get("content")
    return content if isinstance(content, list) else []


def _keep(block: Any, kept: Collection[int], numbers: Iterator[int]) -> Any:
    if not count_breakpoints([block]):
        return block
    left = dict(block)
    if block.get(BREAKPOINT_KEY) is not None and next(numbers) not in kept:
        del left[BREAKPOINT_KEY]
    if block.get("type") == "tool_result" and count_breakpoints(content_of(block)):
        left["content"] = [_keep(part, kept, numbers) for part in content_of(block)]
    return left
