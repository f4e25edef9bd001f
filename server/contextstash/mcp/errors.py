"""Error messages for models and clients: what is wrong and what to do next, without a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from contextstash.base.near_names import nearest
from contextstash.base.plain_logs import error_trace

logger = logging.getLogger(__name__)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """The message for an unknown argument, prompt, …, with the nearest known name."""
    known = list(known)
    near = nearest(name, known)
    hint = f"Did you mean '{near}'? " if near else ""
    return f"There is no {what} '{name}'. {hint}Known: {', '.join(known) or 'none'}."


def wrong_arguments(error: ValidationError, properties: Mapping[str, Any]) -> str:
    """The message that names each wrong argument and its expected type. Values may be secrets: it repeats none."""
    problems: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = str(detail["loc"][0]) if detail["loc"] else "arguments"
        schema = properties.get(name, {})
        if detail["type"] == "missing":
            problems[name] = f"{name} is missing ({_expected(schema)}: {schema.get('description', '')})"
        else:
            place = "".join(f" at [{part}]" for part in detail["loc"][1:2] if isinstance(part, int))
            problems.setdefault(name, f"{name} must be {_expected(schema)}; got {_kind(detail['input'])}{place}")
    return ". ".join(problems.values()) + "."


_WORDS = {
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "string": "a string",
}


def _expected(schema: Mapping[str, Any]) -> str:
    """The type that a schema describes, in words."""
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        items = {"string": " of strings", "object": " of objects"}
        return f"a list{items.get(schema.get('items', {}).get('type', ''), '')}"
    return _WORDS.get(str(schema.get("type")), "something else")


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "another string" if value else "an empty string"
    names: dict[type, str] = {dict: "an object", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def report_crash(doing: str, error: BaseException) -> str:
    """Log an internal error to stderr, only its type and place, since its message may contain session data. Returns the
    message for the client."""
    logger.error("%s failed: %s", doing, error_trace(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); recorded data is safe."
        " Try once more; if it fails again, continue without it and tell the user to look at the server's log."
    )
