"""A JSON value as text that a model or a person reads: every name, number and string, with the strings as they are.

Some clients give their model only a result's text, so the text must hold what the structured content holds. A string
with several lines begins on a line of its own and is neither escaped nor indented. Such strings come after the other
fields of their object: what stands after a text of unknown origin could be imitated in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

MAX_INLINE_CHARACTERS = 60
"""Longest value, in characters, that shares its line with others: handles, names and numbers are shorter, sentences
longer. A wrong value changes only where lines break."""

INDENT = "  "


def readable(value: Mapping[str, Any], headline: str = "") -> str:
    """The fields of an object, one a line, after the headline. A sentence that is in the headline already is left
    out."""
    fields = {name: each for name, each in value.items() if not (_is_sentence(each) and each in headline)}
    head = [headline] if headline else []
    return "\n".join([*head, *_fields(fields, "")])


def _is_sentence(value: Any) -> bool:
    return isinstance(value, str) and " " in value


def _fields(value: Mapping[str, Any], indent: str) -> Iterator[str]:
    for name, each in sorted(value.items(), key=lambda field: _place(field[1])):
        yield from _field(f"{indent}{name}:", each, indent)


def _place(value: Any) -> int:
    """The sort key of a field in its object: short ones first, texts of several lines last."""
    if isinstance(value, str):
        return 2 if "\n" in value else 0
    return 1 if isinstance(value, dict | list) and value else 0


def _field(name: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        yield name
        yield from _fields(value, indent + INDENT)
    elif isinstance(value, list) and value:
        yield from _list(name, value, indent)
    elif isinstance(value, str) and "\n" in value:
        yield name
        yield value
    else:
        yield f"{name} {_scalar(value)}"


def _list(name: str, items: list[Any], indent: str) -> Iterator[str]:
    if all(_is_short(item) for item in items):
        yield f"{name} {', '.join(map(_scalar, items))}"
        return
    yield name
    for item in items:
        if isinstance(item, dict) and item:
            yield from _item(item, indent)
        else:
            yield from _field(f"{indent}-", item, indent)


def _item(item: Mapping[str, Any], indent: str) -> Iterator[str]:
    """An object in a list: its short fields on the first line."""
    short = {name: value for name, value in item.items() if _is_short(value) or _are_short(value)}
    yield f"{indent}- {'; '.join(_pair(name, value) for name, value in short.items())}" if short else f"{indent}-"
    yield from _fields({name: value for name, value in item.items() if name not in short}, indent + INDENT)


def _pair(name: str, value: Any) -> str:
    return f"{name}: {', '.join(map(_scalar, value)) if isinstance(value, list) and value else _scalar(value)}"


def _are_short(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_short, value)) and len(value) <= MAX_INLINE_CHARACTERS // 4


def _is_short(value: Any) -> bool:
    """Whether a value shares its line with others."""
    if isinstance(value, str):
        return len(value) <= MAX_INLINE_CHARACTERS and "\n" not in value
    return not (isinstance(value, dict | list) and value)


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, dict | list):
        return "none"
    return str(value) if value != "" else '""'
