"""Placeholders for lone surrogates (halves of a pair, an escape such as D83D alone), which the SDK does not accept.

A program that cuts a text in the middle of an emoji sends such a half. JSON can contain it, so it must be recorded and
returned unchanged; UTF-8 cannot. While it passes through the SDK, a placeholder replaces each half.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from contextstash.mcp.wire.sendable import with_texts

PREFIX = f"\ufdd0{secrets.token_hex(12)}:"
"""Begins each placeholder. Random for each process, so that no message can contain it by intent."""

HALVES = f"{PREFIX}halves"
"""The name of an extra argument of a call, which says that the others contain placeholders."""

_HALF = re.compile("[\ud800-\udfff]")
_PLACEHOLDER = re.compile(re.escape(PREFIX) + "([0-9a-f]{4})")


def with_placeholders(value: Any) -> Any:
    """The JSON value with a placeholder for each lone surrogate."""
    return with_texts(value, lambda text: _HALF.sub(lambda found: f"{PREFIX}{ord(found[0]):04x}", text))


def without_placeholders(value: Any) -> Any:
    """The inverse of `with_placeholders`."""
    return with_texts(value, lambda text: _PLACEHOLDER.sub(lambda found: chr(int(found[1], 16)), text))
