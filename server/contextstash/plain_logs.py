"""Log lines on standard error, without tracebacks: those of a library may quote the content of a session."""

from __future__ import annotations

import logging
import sys

FORMAT = "contextstash: %(levelname)s: %(message)s"


def configure_logs() -> None:
    """Set up plain lines on stderr, before the SDK sets up its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Printable(FORMAT))
    handler.addFilter(_without_traceback)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


class _Printable(logging.Formatter):
    """One line of printable characters: a message can quote the text of another server or of a repository."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))


def printable(text: str) -> str:
    """The text with a space for each line break and control character."""
    return "".join(each if each.isprintable() else " " for each in text)


def _without_traceback(record: logging.LogRecord) -> bool:
    """Replace an error's text and traceback by its name: pydantic's errors quote the wrong value."""
    if record.exc_info:
        kind = record.exc_info[0]
        record.msg, record.args = f"{record.getMessage()} ({kind.__name__ if kind else 'unknown error'})", ()
        record.exc_info = record.exc_text = None
    return True
