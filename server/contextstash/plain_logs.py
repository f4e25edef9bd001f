"""Lines on standard error: what happened, never a traceback of a library, which may quote what a session holds."""

from __future__ import annotations

import logging
import sys

FORMAT = "contextstash: %(levelname)s: %(message)s"


def log_plainly() -> None:
    """Set up plain lines on stderr, before the SDK sets up its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(_without_traceback)
    logging.basicConfig(level=logging.WARNING, format=FORMAT, handlers=[handler])


def _without_traceback(record: logging.LogRecord) -> bool:
    """The name of the error in the place of its text and traceback: pydantic's quotes the value that was wrong."""
    if record.exc_info:
        kind = record.exc_info[0]
        record.msg, record.args = f"{record.getMessage()} ({kind.__name__ if kind else 'unknown error'})", ()
        record.exc_info = record.exc_text = None
    return True
