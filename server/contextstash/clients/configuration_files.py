"""Configuration files as documents: adds or removes an entry and keeps the rest as far as the library can."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any

from contextstash.clients.client import Kind
from contextstash_storage.errors import BadInputError

Edit = Callable[[MutableMapping[str, Any]], None]
"""Changes a document's content in place."""


def content(kind: Kind, text: str, place: str) -> dict[str, Any]:
    """The content of a document. Raises BadInputError, naming the place, if it cannot be read."""
    try:
        data = tomllib.loads(text) if kind == "toml" else json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        wrong = "is not valid TOML" if kind == "toml" else "is not plain JSON, perhaps with comments"
        raise BadInputError(f"{place} {wrong}: {error}. Nothing was written: add the entry by hand.") from error
    if not isinstance(data, dict):
        raise BadInputError(f"{place} does not hold a mapping of settings. Nothing was written.")
    return data


def edited(kind: Kind, text: str, edit: Edit, place: str) -> str:
    """The document after `edit`. Raises BadInputError, naming the place, if it cannot be read."""
    data = content(kind, text, place)
    if kind == "toml":
        import tomlkit

        document = tomlkit.parse(text)
        edit(document)
        return tomlkit.dumps(document)
    edit(data)
    indent = re.search(r"\n([ \t]+)\S", text)
    ending = text[len(text.rstrip("\r\n")) :] if text.strip() else "\n"
    return _written_json(data, indent[1] if indent else 2) + ending


def value_at(data: object, keys: Sequence[str]) -> Any:
    """The value at a place, None if there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def put(data: MutableMapping[str, Any], keys: Sequence[str], value: object) -> None:
    """Set a value. Raises BadInputError if its place is in something that is not a mapping."""
    for key in keys[:-1]:
        data = data.setdefault(key, {})
        if not isinstance(data, MutableMapping):
            raise BadInputError(f"'{key}' in that file is not a mapping. Nothing was written.")
    if data.get(keys[-1]) != value:
        data[keys[-1]] = value


def remove(data: MutableMapping[str, Any], keys: Sequence[str]) -> None:
    """Remove the value at a place, if there is one, and the mappings around it that are empty then."""
    inner = data.get(keys[0])
    if len(keys) > 1 and isinstance(inner, MutableMapping):
        remove(inner, keys[1:])
    if keys[0] in data and (len(keys) == 1 or not inner):
        del data[keys[0]]


def _written_json(data: object, indent: int | str) -> str:
    text = json.dumps(data, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which only an escape can write
        return json.dumps(data, indent=indent)
    return text
