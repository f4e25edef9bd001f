"""What a process of contextstash sets for itself: its log lines, and its interpreter. As a library it sets neither:
they belong to the program that uses it. The lines have no tracebacks, which may quote the content of a session."""

from __future__ import annotations

import gc
import logging
import sys
from traceback import walk_tb
from typing import Any, TextIO

OURS = ("contextstash.", "contextstash_storage.")
MAX_FRAMES = 6
"""How many of our frames are named, the innermost first: enough to see which use case ran the line."""


def error_trace(error: BaseException) -> str:
    """The error's type and the innermost frames of contextstash, such as
    `KeyError at contextstash.reduce.prune:114 in _carry_out <- contextstash.stash:139 in prune_tool_outputs`."""
    frames = [(frame.f_globals.get("__name__", ""), line, frame) for frame, line in walk_tb(error.__traceback__)]
    places = [f"{name}:{line} in {frame.f_code.co_name}" for name, line, frame in frames if name.startswith(OURS)]
    return f"{type(error).__name__} at {' <- '.join(places[: -MAX_FRAMES - 1 : -1]) or 'no line of contextstash'}"


FORMAT = "contextstash: %(levelname)s: %(message)s"


def configure_logs(to: TextIO | None = None) -> None:
    """Set up plain lines on stderr, or in a file, before the SDK sets up its own."""
    handler = logging.StreamHandler(to or sys.stderr)
    handler.setFormatter(_Printable(FORMAT))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


def configure_warnings() -> None:
    """The warnings of a command as lines of printable characters: they can quote a file of somebody else's folder."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(_Printable("%(message)s"))


class _Printable(logging.Formatter):
    """One line of printable characters: a message can quote the text of another server or of a repository. Of an error
    it has the name alone: pydantic's quote the wrong value."""

    def format(self, record: logging.LogRecord) -> str:
        record.exc_text = None  # another handler's
        return printable(super().format(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802
        return f"({ei[0].__name__ if ei[0] else 'unknown error'})"


def printable(text: str) -> str:
    """The text with a space for each line break and control character, and without secrets: a provider's error can
    quote the key that it refused."""
    from contextstash.safety.secret_masks import shown  # loads pydantic-core, which a command line need not

    return shown("".join(each if each.isprintable() else " " for each in text))


TURN_SECONDS = 0.001
"""How long a thread runs before another one gets its turn, in place of 0.005. While a session is reduced in a thread, a
call of another client changes threads some ten times, and waits as long each time. A shorter turn costs throughput."""


NEW_OBJECTS = 10_000
"""After how many new objects the garbage collector looks at these, in place of 700. A request of 2,000 messages makes
5,000 that are gone at its end: each look at those that are still there takes 0.1 ms. Cycles are freed later."""


def own_interpreter() -> None:
    """Let short calls not wait for a reduction of a long session: threads take shorter turns, and what is loaded so far
    stays, so that the garbage collector does not look through it again and again (20 to 30 ms each time)."""
    sys.setswitchinterval(TURN_SECONDS)
    gc.set_threshold(NEW_OBJECTS, *gc.get_threshold()[1:])
    gc.freeze()
