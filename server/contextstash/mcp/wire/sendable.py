"""Values that JSON over MCP can carry: it is UTF-8, so it has neither lone surrogates nor NaN."""

from __future__ import annotations

import math
import re
from typing import Any

import pydantic_core
from pydantic import BaseModel

_LONE_SURROGATES = re.compile("[\ud800-\udfff]")
_NOT_JSON = re.compile(rb"NaN|Infinity")

REPLACED = " Half of a surrogate pair, which not every client can read, is shown as U+FFFD here and kept as recorded."
"""Added to an answer that differs from the recorded data."""


def sendable_text(text: str) -> str:
    """The text with lone surrogates shown as U+FFFD."""
    return _LONE_SURROGATES.sub("\ufffd", text)


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


def sendable(value: Any) -> Any:
    """A JSON value that can be sent; the same object if nothing had to be replaced. NaN and infinities, which databases
    of earlier versions may contain, become their names."""
    try:
        written = pydantic_core.to_json(value)
    except (pydantic_core.PydanticSerializationError, UnicodeEncodeError):
        return _replaced(value)
    return _replaced(value) if _NOT_JSON.search(written) and holds_non_finite(value) else value


def named_numbers(value: Any) -> Any:
    """The JSON value with names instead of NaN and infinities; lone surrogates stay."""
    if isinstance(value, dict):
        return {key: named_numbers(each) for key, each in value.items()}
    if isinstance(value, list):
        return [named_numbers(each) for each in value]
    return _named(value) if isinstance(value, float) and not math.isfinite(value) else value


def _named(number: float) -> str:
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def holds_non_finite(value: Any) -> bool:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, float) and not math.isfinite(each):
            return True
        waiting += each.values() if isinstance(each, dict) else each if isinstance(each, list) else ()
    return False


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return sendable_text(value)
    if isinstance(value, dict):
        return {sendable_text(str(key)): _replaced(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_replaced(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return _named(value)
    return value


def clipped(text: str, characters: int, rest: str) -> str:
    """Head and tail of the text within `characters`. The notice in the middle says how much is missing, and `rest`
    where to find it. Two thirds go to the head: a summary begins with the task."""
    if len(text) <= characters:
        return text
    head, tail = characters * 2 // 3, characters // 3
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[… {left_out:,} characters left out here: {rest} …]\n{text[-tail:]}"
