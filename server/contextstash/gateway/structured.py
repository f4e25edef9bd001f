"""Smaller structured content: long strings and long lists are shortened, the structure is kept."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

STEPS = ((2_000, 100), (1_000, 50), (500, 20), (200, 10), (100, 5), (60, 2))
"""Maximum characters of a string and maximum items of a list or object, tried in this order until the whole is small
enough. Each step about halves the one before."""


def as_text(value: Any) -> str:
    """The JSON text of a value, as shown to a model."""
    return json.dumps(value, ensure_ascii=False)


def smaller_forms(value: Any, handle: str, max_chars: int | None = None) -> Iterator[Any]:
    """Forms of a value, each smaller than the one before. Forms with all items of lists and objects come first, unless
    even the smallest of them has more than `max_chars` characters. A shortened string names the handle of the whole."""
    smallest_whole = _shortened(value, STEPS[-1][0], None, handle)
    if max_chars is None or len(as_text(smallest_whole)) <= max_chars:
        for longest, _ in STEPS:
            yield _shortened(value, longest, None, handle)
    for longest, items in STEPS:
        yield _shortened(value, longest, items, handle)


def replaced_strings(value: Any, texts: dict[str, str]) -> Any:
    """A value with some of its strings replaced by others."""
    if isinstance(value, str):
        return texts.get(value, value)
    if isinstance(value, list):
        return [replaced_strings(each, texts) for each in value]
    if isinstance(value, dict):
        return {key: replaced_strings(each, texts) for key, each in value.items()}
    return value


def is_valid(value: Any, schema: dict[str, Any] | None) -> bool:
    """Whether a value is valid for a tool's output schema; without a schema, every value is. If the schema is invalid
    or refers to another document, it cannot be checked, and no value is.

    The schema is the server's: one expression of it can take hours, so a caller needs a time limit."""
    if schema is None:
        return True
    from jsonschema.validators import validator_for
    from referencing import Registry

    try:
        kind = validator_for(schema)
        kind.check_schema(schema)
        return bool(kind(schema, registry=Registry()).is_valid(value))
    except Exception:  # of a malformed schema the library raises many kinds: RecursionError, re.error, AttributeError
        return False


def _shortened(value: Any, longest: int, items: int | None, handle: str) -> Any:
    if isinstance(value, str):
        return _string(value, longest, handle)
    if isinstance(value, list):
        return [_shortened(each, longest, items, handle) for each in value[:items]]
    if isinstance(value, dict):
        kept = list(value.items())[: None if items is None else max(items, 20)]
        return {key: _shortened(each, longest, items, handle) for key, each in kept}
    return value


def _string(text: str, longest: int, handle: str) -> str:
    if len(text) <= longest + 80:
        return text
    head = longest * 2 // 3
    tail = longest - head
    return f"{text[:head]} [… {len(text) - longest:,} characters omitted, all in {handle} …] {text[-tail:]}"
