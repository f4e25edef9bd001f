"""A text that is JSON, as the text of its values: what a reader looks for, without quotes, braces and escapes."""

from __future__ import annotations

import json
import re

MAX_CHARACTERS = 200_000
"""Longer texts stay as they are: parsing one of this size takes 2 ms. A guess."""

_ENVELOPE = re.compile(r'\s*[\[{]\s*(?:"|[\[{\]}])')


def plain_text(text: str) -> str:
    """The strings and numbers of a JSON document in their order, one a line; any other text as it is.

    Some tools return their output within JSON, such as `{"output": "first line\\nsecond", "metadata": …}`.
    """
    head, newline, rest = text.partition("\n")
    if _ENVELOPE.match(rest) and (values := _values(rest)) is not None:  # after the line of its call
        return head + newline + values
    values = _values(text) if _ENVELOPE.match(text) else None
    return text if values is None else values


def _values(text: str) -> str | None:
    if len(text) > MAX_CHARACTERS:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    found: list[str] = []
    waiting = [document]
    while waiting:  # not recursive: a document may be nested as deep as JSON is read
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.values())
        elif isinstance(value, list):
            waiting += reversed(value)
        elif isinstance(value, str):
            found.append(value)
        elif value is not None:
            found.append(json.dumps(value))
    return "\n".join(found)
