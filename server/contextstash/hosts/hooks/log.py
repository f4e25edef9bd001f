"""The log of the hooks, beside the database. Only its owner can read it, since it names files and errors."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any

LOG_NAME = "hooks.log"

MAX_LOG_BYTES = 1_000_000
"""A larger log is renamed to `hooks.log.1`, which replaces the previous one. A guess."""

MAX_LOG_LINE = 1_000
"""Characters of a line. The longest lines are remarks on a project's files, which name what was ignored and the command
that accepts it."""

OWNER_ONLY = 0o600


def note(host: str, line: str) -> None:
    """Write a line into the log. A failure is ignored: there is no other place to report it."""
    with suppress(Exception):
        from datetime import UTC, datetime

        from contextstash.locations import default_database

        path = default_database().parent / LOG_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = _opened(path)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.close(descriptor)
            path.replace(path.with_suffix(".log.1"))
            descriptor = _opened(path)
        shown = "".join(character if character.isprintable() else " " for character in line)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {host}: {' '.join(shown.split())[:MAX_LOG_LINE]}\n")


def _opened(path: Any) -> int:
    """The log, opened for appending and readable only by its owner from its first byte on. Raises OSError if it is a
    link, which another user may have put into a shared folder, or a FIFO, which would block."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags, OWNER_ONLY)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("the log is not a regular file")
        if found.st_mode & 0o077 and hasattr(os, "fchmod"):
            os.fchmod(descriptor, OWNER_ONLY)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
