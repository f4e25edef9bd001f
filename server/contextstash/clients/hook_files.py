"""The files of hooks: the log that they write, and those of a client that they may read, whose paths it passes."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from contextstash.base.regular_files import is_below, resolved
from contextstash_storage.errors import BadInputError

BUSY_SECONDS = 2.0
"""How long a hook waits while another process writes to the database, before it gives up: the client waits for the hook
after every tool call."""

LOG_NAME = "hooks.log"

MAX_LOG_BYTES = 1_000_000
"""A larger log is renamed to `hooks.log.1`, which replaces the previous one."""

MAX_LOG_LINE = 1_000
"""Characters of a line. The longest lines are remarks on a project's files, which name what was ignored and the command
that accepts it."""


def own_file(path: str, client: str, folders: Sequence[Path]) -> Path | None:
    """The file at a path that a client passed, resolved, so that neither `..` nor a link leads out of its folders; None
    if it is missing (a new session has no transcript yet). Raises BadInputError if it is not a regular file below one
    of the client's own folders."""
    found = resolved(Path(path).expanduser())
    own = [folder.expanduser() for folder in folders]
    if not any(is_below(found, folder) for folder in own):
        kept = " or ".join(map(str, own))
        raise BadInputError(f"Not read: {str(found)[:200]} is outside of {kept}, where {client} keeps its files.")
    try:
        mode = found.stat().st_mode
    except FileNotFoundError:
        return None
    except NotADirectoryError:  # a session in a client's database is named as if that were a folder
        mode = found.parent.stat().st_mode
    if not stat.S_ISREG(mode):
        raise BadInputError(f"Not read: {str(found)[:200]} is not a regular file.")
    return found


def note(client: str, line: str, *, once: bool = False) -> None:
    """Write a line into the log, which only the owner can read, since it names files and errors; with `once` only if
    the log does not hold it yet. A failure is ignored: there is no other place to report it."""
    with suppress(Exception):
        from datetime import UTC, datetime

        from contextstash.base.regular_files import open_log
        from contextstash.configuration.locations import data_folder
        from contextstash.safety.secret_masks import shown as masked

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
            file.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {client}: {shown}\n")
