"""Error messages for models and clients: what is wrong and what to do next, without a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from mcp import MCPError
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import ValidationError

from contextstash.base.near_names import nearest
from contextstash.base.plain_logs import error_trace
from contextstash.mcp.sendable import sendable_text
from contextstash.mcp.surface.schemas import expected
from contextstash_storage.errors import BadInputError, ContextstashError, NotFoundError

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


@contextmanager
def protocol_errors(doing: str) -> Iterator[None]:
    """Raises the service's errors as those of the protocol: a request that is wrong, or a failure of this server."""
    try:
        yield
    except MCPError:
        raise
    except (BadInputError, NotFoundError) as error:
        raise MCPError(INVALID_PARAMS, sendable_text(str(error))) from None
    except ContextstashError as error:
        raise MCPError(INTERNAL_ERROR, sendable_text(str(error))) from None
    except Exception as error:
        raise MCPError(INTERNAL_ERROR, report_crash(doing, error)) from None


def report_crash(doing: str, error: BaseException) -> str:
    """Log an internal error to stderr, only its type and place, since its message may contain session data. Returns the
    message for the client."""
    logger.error("%s failed: %s", doing, error_trace(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); recorded data is safe."
        " Try once more; if it fails again, continue without it and tell the user to look at the server's log."
    )
