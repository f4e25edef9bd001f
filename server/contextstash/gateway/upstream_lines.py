"""Lines of a server's process, read so that each request of ours gets its answer or an error.

The SDK's reader drops a line that it cannot parse: the call hangs, and a traceback with a part of the line is logged.
It has no public place to put another reader; this module is the one that uses its private part.
"""

from __future__ import annotations

import logging

from mcp.client import stdio
from mcp.shared.message import SessionMessage
from mcp.types import PARSE_ERROR

from contextstash.json_text import BadJsonError
from contextstash.mcp.envelopes import found_id, read_answer, refusal

logger = logging.getLogger(__name__)


def read_line(line: str) -> SessionMessage | Exception:
    """The message in a line; an error in its place if it answers a request of ours and cannot be read."""
    data = line.encode("utf-8", "replace")
    try:
        return SessionMessage(read_answer(data))
    except BadJsonError as error:
        logger.warning("a line of %s bytes from a server was refused: %s", f"{len(data):,}", error.kind)
        number = found_id(data)
        if number is None:
            return error
        return SessionMessage(refusal(PARSE_ERROR, f"The server's answer cannot be passed on. {error}", number))


def use_for_processes() -> None:
    """From now on the SDK reads the lines of each process it starts with `read_line`."""
    stdio._parse_line = read_line
