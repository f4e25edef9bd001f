"""The log of the hooks, in the folder of the database. Only its owner can read it, since it names files and errors."""

from __future__ import annotations

import os
from contextlib import suppress

LOG_NAME = "hooks.log"

MAX_LOG_BYTES = 1_000_000
"""A larger log is renamed to `hooks.log.1`, which replaces the previous one."""

MAX_LOG_LINE = 1_000
"""Characters of a line. The longest lines are remarks on a project's files, which name what was ignored and the command
that accepts it."""


def note(host: str, line: str, *, once: bool = False) -> None:
    """Write a line into the log; with `once` only if the log does not hold it yet. A failure is ignored: there is no
    other place to report it."""
    with suppress(Exception):
        from datetime import UTC, datetime

        from contextstash.configuration.locations import data_folder
        from contextstash.context.text.secret_masks import shown as masked
        from contextstash.files.regular_files import open_log

        path = data_folder() / LOG_NAME
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shown = "".join(character if character.isprintable() else " " for character in line)
        shown = masked(" ".join(shown.split()))[:MAX_LOG_LINE]
        if once and path.is_file() and shown in path.read_text("utf-8", "replace"):
            return
        descriptor = open_log(path)
        if os.fstat(descriptor).st_size > MAX_LOG_BYTES:
            os.close(descriptor)
            path.replace(path.with_suffix(".log.1"))
            descriptor = open_log(path)
        with os.fdopen(descriptor, "a", encoding="utf-8", errors="replace") as file:
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {host}: {shown}\n")
