"""Values that JSON over MCP can carry: it is UTF-8, so it has no lone surrogates (halves of a pair)."""

from __future__ import annotations

import math
import re
from typing import Any

import pydantic_core
from pydantic import BaseModel

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")

REPLACEMENT = "\ufffd"

REPLACED = " Half of a surrogate pair, which not every client can read, is shown as U+FFFD here and kept as recorded."
"""Added to an answer that differs from the recorded data."""


def has_lone_surrogate(value: object) -> bool:
    """Whether a JSON value contains a lone surrogate, in its names too."""
    try:
        pydantic_core.to_json(value)
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        return True
    return False


def sendable(value: Any) -> Any:
    """A JSON value that can be sent; the same object if nothing had to be replaced."""
    return _with_texts(value) if has_lone_surrogate(value) else value


def sendable_text(text: str) -> str:
    """The text with lone surrogates shown as U+FFFD."""
    return _LONE_SURROGATES.sub(REPLACEMENT, text)


def _with_texts(value: Any) -> Any:
    """The JSON value with each lone surrogate replaced, in names too."""
    if isinstance(value, str):
        return value if value.isascii() else sendable_text(value)
    if isinstance(value, dict):
        return {_with_texts(name): _with_texts(child) for name, child in value.items()}
    if isinstance(value, list):
        return [_with_texts(child) for child in value]
    return value


def dumped(result: BaseModel) -> Any:
    """The result as a JSON value. Lone surrogates stay, also in names, which pydantic cannot write."""
    try:
        return result.model_dump(mode="json")
    except ValueError:
        return _jsonable(result.model_dump())


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else pydantic_core.to_jsonable_python(value)


def holds_non_finite(value: Any) -> bool:
    """Whether a value contains NaN or an infinity."""
    if isinstance(value, dict | list):
        return any(map(holds_non_finite, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float) and not math.isfinite(value)


def holds_text(value: Any, part: str) -> bool:
    """Whether a text in a JSON value contains this part."""
    if isinstance(value, dict | list):
        return any(holds_text(each, part) for each in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, str) and part in value


def clipped(text: str, characters: int, rest: str) -> str:
    """Head and tail of the text within `characters`. The notice in the middle says how much is missing, and `rest`
    where to find it. Two thirds go to the head: a summary begins with the task."""
    if len(text) <= characters:
        return text
    head, tail = characters * 2 // 3, characters // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out:,} characters left out here: {rest} …]\n{text[-tail:]}"
