"""Error messages for models and clients: what is wrong and what to do next, without a traceback."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

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


def wrong_arguments(error: ValidationError) -> str:
    """The message that names each wrong argument and what is expected, the first problem of each. Values, and the names
    in them, may be secrets: it repeats none."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    first = {each["loc"][:1]: each for each in reversed(found)}
    return ". ".join(f"{_place(each['loc'])}: {each['msg']}" for each in reversed(first.values())) + "."


def _place(path: Sequence[int | str]) -> str:
    """The argument, and the numbers of what is wrong in it."""
    return ".".join(str(step) for number, step in enumerate(path) if not number or isinstance(step, int))


def report_crash(doing: str, error: BaseException) -> str:
    """Log an internal error to stderr, only its type and place, since its message may contain session data. Returns the
    message for the client."""
    logger.error("%s failed: %s", doing, error_trace(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); recorded data is safe."
        " Try once more; if it fails again, continue without it and tell the user to look at the server's log."
    )
