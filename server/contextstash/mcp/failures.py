"""What a model or client is told when something fails: what is wrong, what to do next, no traceback."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from contextstash.faults import fault_of
from contextstash.mcp.schemas import expected

logger = logging.getLogger(__name__)


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """Says that there is no such argument, prompt, …, and which one was likely meant."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    return f"There is no {what} '{name}'. {hint}Known: {', '.join(known) or 'none'}."


def wrong_arguments(error: ValidationError, properties: Mapping[str, Any]) -> str:
    """Names each wrong argument and what is expected there. Values are never repeated."""
    problems: dict[str, str] = {}
    for detail in error.errors(include_url=False, include_context=False):
        name = str(detail["loc"][0]) if detail["loc"] else "arguments"
        schema = properties.get(name, {})
        if detail["type"] == "missing":
            meaning = schema.get("description", "")
            problems[name] = f"{name} is missing ({expected(schema)}: {meaning})"
        else:
            given = _kind(detail["input"])
            place = "".join(f" at [{part}]" for part in detail["loc"][1:2] if isinstance(part, int))
            problems.setdefault(name, f"{name} must be {expected(schema)}; got {given}{place}")
    return ". ".join(problems.values()) + "."


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return "another string" if value else "an empty string"
    names: dict[type, str] = {dict: "an object", list: "a list", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def report_crash(doing: str, error: BaseException) -> str:
    """Log a fault of ours to stderr, by type and place only (the message may hold what a session holds), and
    answer what the client is told."""
    logger.error("%s failed: %s", doing, fault_of(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); what was recorded is safe."
        " Try once more; if it fails again, go on without it and tell the user to look at the server's log."
    )
