"""Error messages for models and clients: what is wrong and what to do next, without a traceback."""

from __future__ import annotations

import logging

from contextstash.base.plain_logs import error_trace

logger = logging.getLogger(__name__)


def report_crash(doing: str, error: BaseException) -> str:
    """Log an internal error to stderr, only its type and place, since its message may contain session data. Returns the
    message for the client."""
    logger.error("%s failed: %s", doing, error_trace(error))
    return (
        f"{doing} failed inside contextstash ({type(error).__name__}); recorded data is safe."
        " Try once more; if it fails again, continue without it and tell the user to look at the server's log."
    )
