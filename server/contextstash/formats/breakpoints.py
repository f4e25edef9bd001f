"""Cache breakpoints: which of the marks that messages were recorded with are sent.

Agents mark the end of each request, so a session collects marks. Anthropic takes four in a request, those of the tools
and the system prompt among them; a mark costs nothing by itself. It reads the cache by looking back from each mark, 20
blocks far, for the end of an earlier request. What pays is the newest mark, and where earlier messages have been
edited the newest mark before the first edit: up to there the cache still holds. Source: Anthropic's guide to prompt
caching.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from contextstash_storage.records import Native

MAX_BREAKPOINTS = 4
"""How many cache breakpoints the API takes in a request."""

MARK = "cache_control"


def sent_marks(places: Sequence[int], most: int, changed: int | None) -> list[int]:
    """Which of the marks are sent, by their number; `places` says in which message each stands, `changed` which
    message is the first that is not shown as it was. All of them if they are few enough."""
    newest = list(range(max(0, len(places) - most), len(places)))
    if changed is None or len(newest) == len(places) or most < 2:
        return newest
    cached = [number for number, place in enumerate(places) if place < changed]
    return newest if not cached or cached[-1] >= newest[0] else [cached[-1], *newest[1:]]


def first_edited(natives: Sequence[Native], recorded: Iterable[Native]) -> int | None:
    """The place of the first message that is not one of the recorded ones itself; None if there is none."""
    known = {id(native) for native in recorded}
    return next((place for place, native in enumerate(natives) if id(native) not in known), None)


def count_marks(blocks: Iterable[object]) -> int:
    """How many cache breakpoints stand in a list of blocks (content, system prompt or tools), nested ones too."""
    return sum(_is_marked(block) for block in _with_nested(blocks))


def keep_marks(native: Native, kept: Collection[int]) -> Native:
    """The message with only those of its marks, by their number in it."""
    numbers = iter(range(count_marks(content_of(native))))
    return {**native, "content": [_keep(block, kept, numbers) for block in content_of(native)]}


def content_of(native: Mapping[str, Any]) -> list[Any]:
    """A message's or a tool result's blocks; none if its content is a string."""
    content = native.get("content")
    return content if isinstance(content, list) else []


def _is_marked(block: Mapping[str, Any]) -> bool:
    return block.get(MARK) is not None


def _with_nested(blocks: Iterable[object]) -> Iterator[Mapping[str, Any]]:
    """Blocks with those inside tool results among them, each before those in it."""
    for block in blocks:
        if isinstance(block, Mapping):
            yield block
            if block.get("type") == "tool_result":
                yield from _with_nested(content_of(block))


def _keep(block: Any, kept: Collection[int], numbers: Iterator[int]) -> Any:
    if not count_marks([block]):
        return block
    left = dict(block)
    if _is_marked(block) and next(numbers) not in kept:
        del left[MARK]
    if block.get("type") == "tool_result" and count_marks(content_of(block)):
        left["content"] = [_keep(part, kept, numbers) for part in content_of(block)]
    return left
