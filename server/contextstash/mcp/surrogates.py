"""Halves of surrogate pairs (an escape such as D83D alone), brought through the SDK, whose reader and models take none.

A program that cuts a text in the middle of an emoji sends such a half. JSON can say it, so what was recorded comes back
with it; but UTF-8 cannot hold it. On its way through the SDK each half stands as a mark that no text holds by chance.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

MARK = f"\ufdd0{secrets.token_hex(12)}:"
"""Made new for each process, so that no message can be written that holds it."""

HALVES = f"{MARK}halves"
"""A name among a call's arguments that says that there are marks in the others."""

_HALF = re.compile("[\ud800-\udfff]")
_MARKED = re.compile(re.escape(MARK) + "([0-9a-f]{4})")


def holds_halves(value: object) -> bool:
    """Whether there is half of a surrogate pair in a JSON value, its names included."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if not each.isascii() and _HALF.search(each):
                return True
        elif isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


def marked(value: Any) -> Any:
    """The JSON value with a mark for each half."""
    return _changed(value, _mark)


def unmarked(value: Any) -> Any:
    """The JSON value of `marked`."""
    return _changed(value, unmarked_text)


def unmarked_text(text: str) -> str:
    """The text with the halves that were marked."""
    return _MARKED.sub(lambda found: chr(int(found[1], 16)), text) if MARK in text else text


def _mark(text: str) -> str:
    return text if text.isascii() else _HALF.sub(lambda found: f"{MARK}{ord(found[0]):04x}", text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed(child, change) for key, child in value.items()}
    if isinstance(value, list):
        return [_changed(child, change) for child in value]
    return value
