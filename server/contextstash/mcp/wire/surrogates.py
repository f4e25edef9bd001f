"""Placeholders for lone surrogates (halves of a pair, an escape such as D83D alone), which the SDK does not accept.

A program that cuts a text in the middle of an emoji sends such a half. JSON can contain it, so it must be recorded and
returned unchanged; UTF-8 cannot. While it passes through the SDK, a placeholder replaces each half.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from typing import Any

PREFIX = f"\ufdd0{secrets.token_hex(12)}:"
"""Begins each placeholder. Random for each process, so that no message can contain it by intent."""

HALVES = f"{PREFIX}halves"
"""The name of an extra argument of a call, which says that the others contain placeholders."""

_HALF = re.compile("[\ud800-\udfff]")
_PLACEHOLDER = re.compile(re.escape(PREFIX) + "([0-9a-f]{4})")


def has_lone_surrogate(value: object) -> bool:
    """Whether a JSON value contains a lone surrogate, in its names too."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            if not each.isascii() and _holds_half(each):
                return True
        elif isinstance(each, dict):
            waiting += each
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return False


def _holds_half(text: str) -> bool:
    """By writing it as UTF-8: four times as fast as a pattern, which would keep other threads waiting."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def with_placeholders(value: Any) -> Any:
    """The JSON value with a placeholder for each lone surrogate."""
    return _changed(value, _replaced)


def without_placeholders(value: Any) -> Any:
    """The inverse of `with_placeholders`."""
    return _changed(value, without_placeholders_in)


def without_placeholders_in(text: str) -> str:
    """The text with the lone surrogates again."""
    return _PLACEHOLDER.sub(lambda found: chr(int(found[1], 16)), text) if PREFIX in text else text


def _replaced(text: str) -> str:
    return text if text.isascii() else _HALF.sub(lambda found: f"{PREFIX}{ord(found[0]):04x}", text)


def _changed(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _changed(child, change) for key, child in value.items()}
    if isinstance(value, list):
        return [_changed(child, change) for child in value]
    return value
