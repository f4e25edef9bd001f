"""Text that the wire can carry: JSON over MCP is UTF-8, so it has no place for half a surrogate pair."""

from __future__ import annotations

import re
from typing import Any

import pydantic_core

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")


def sendable_text(text: str) -> str:
    """The text with lone surrogates shown as U+FFFD."""
    return _LONE_SURROGATES.sub("\ufffd", text)


def sendable(value: Any) -> Any:
    """A JSON value that can be sent; the same object where nothing had to be replaced."""
    try:
        pydantic_core.to_json(value)
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        return _replaced(value)
    return value


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return sendable_text(value)
    if isinstance(value, dict):
        return {sendable_text(str(key)): _replaced(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each) for each in value]
    return value


def clipped(text: str, characters: int, rest: str) -> str:
    """The text's head and tail within so many characters; in the middle it says what was left out and `rest`,
    where to find it."""
    if len(text) <= characters:
        return text
    head, tail = characters * 2 // 3, characters // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out:,} characters left out here: {rest} …]\n{text[-tail:]}"
