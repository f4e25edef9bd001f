"""The limits on the size of one message: its blocks and its characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextstash_storage.errors import BadMessageError
from contextstash_storage.json_values import NotJsonError, check_json

MAX_BLOCKS = 10_000
"""Blocks of one message, including those inside its tool results. Reading and measuring them blocks the interpreter:
100,000 blocks delayed other calls by 0.8 s, 10,000 by less than 0.1 s (measured). The longest message in the
real sessions that were examined has 17."""

_LISTS = ("content", "output", "parts", "tool_calls")

MAX_CHARACTERS = 64 * 1024 * 1024
"""Characters of the strings of one message. It is stored in one transaction, in which no other process can write: about
3 ms of processor time for each million characters, and the time of the disk. No more fits into a request over MCP, and
half of it is more than Anthropic accepts in one request."""


def check_limits(natives: Sequence[Mapping[str, Any]]) -> None:
    """Raises BadMessageError if a message is larger than can be recorded. To be called before any processing."""
    for place, native in enumerate(natives):
        if (problem := limit_problem(native)) is not None:
            raise BadMessageError(f"Message {place} {problem}")


def limit_problem(native: Mapping[str, Any]) -> str | None:
    """The limit that a message exceeds, or what it holds that JSON does not have, and what to do; None if it can be
    recorded. The text continues a sentence about the message."""
    count = blocks_of(native)
    if count > MAX_BLOCKS:
        return (
            f"has {count:,} blocks; at most {MAX_BLOCKS:,} can be recorded. Join its texts, or send it as several"
            " messages."
        )
    try:
        size = check_json(native)
    except NotJsonError as error:
        return str(error)
    if size > MAX_CHARACTERS:
        return (
            f"has more than {MAX_CHARACTERS:,} characters, the most that can be recorded and more than providers"
            " accept. Write the data to a file, and send its path."
        )
    return None


def characters(value: object, enough: int) -> int:
    """The approximate number of characters in a JSON value; stops counting above `enough`."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):  # the usual case first: looking at a Mapping takes three times as long
        children: Iterable[object] = value.values()
    else:
        children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    size = 0
    for child in children:
        size += characters(child, enough)
        if size > enough:
            break
    return size


def blocks_of(native: Mapping[str, Any], levels: int = 2) -> int:
    """How many blocks a message has, including those inside its tool results; stops counting above MAX_BLOCKS."""
    count = 0
    for name in _LISTS:
        blocks = native.get(name)
        if isinstance(blocks, list):
            count += len(blocks)
            if levels > 1 and count <= MAX_BLOCKS:
                count += sum(blocks_of(block, levels - 1) for block in blocks if isinstance(block, dict))
    return count
