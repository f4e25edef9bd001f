"""JSON schemas as a client sees them, without titles and null defaults, which pydantic adds and which cost tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]


def input_schema(generated: Schema) -> Schema:
    """A tool's arguments, closed to unknown ones, so that a client that validates finds a misspelt name first."""
    schema = _slim(generated)
    schema["additionalProperties"] = False
    return schema


def output_schema(model: type[BaseModel]) -> Schema:
    """The schema of a result on the wire, in which missing fields are absent and never null."""
    return _slim(model.model_json_schema(mode="validation"))


def _slim(schema: Mapping[str, Any]) -> Schema:
    kept: Schema = {}
    for key, value in schema.items():
        if key == "title" or (key == "default" and value is None):
            continue
        if key in ("properties", "$defs"):
            kept[key] = {name: _slim(each) for name, each in value.items()}
        elif key == "anyOf":
            _add_alternatives(kept, value)
        elif key == "items":
            kept[key] = _slim(value)
        elif key == "additionalProperties":
            if isinstance(value, dict):
                kept[key] = _slim(value)
        else:
            kept[key] = value
    return kept


def _add_alternatives(schema: Schema, alternatives: list[Schema]) -> None:
    """Add `X or null` as X: a missing field has the same meaning as null."""
    real = [_slim(each) for each in alternatives if each.get("type") != "null"]
    if len(real) == 1:
        for key, value in real[0].items():
            schema.setdefault(key, value)
    else:
        schema["anyOf"] = real
