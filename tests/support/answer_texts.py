"""What a result's text must hold: every name and value of its structured content, strings as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def missing_from(text: str, structured: Any) -> list[str]:
    """The values of a JSON object that its text does not hold. Numbers may have separators in the text."""
    without_separators = text.replace(",", "")
    return [leaf for leaf in leaves(structured) if leaf not in text and leaf not in without_separators]


def leaves(value: Any) -> Iterator[str]:
    """The strings and numbers in a JSON value, as text."""
    if isinstance(value, dict):
        for each in value.values():
            yield from leaves(each)
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)
