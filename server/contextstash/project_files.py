"""Reading files that somebody else may have written: regular ones within the project, of limited size, never waiting
for what hangs, and never parsing what would not end."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 64 * 1024
"""Some twenty times a file that sets everything that can be set."""

MAX_MARKS_IN_A_LINE = 200
"""Dots and opening brackets: the standard library's TOML parser takes 52 seconds for one key of 32,000 parts, PyYAML 6
for 3,000 brackets; neither takes a hundredth of one for 200."""


class RefusedFileError(Exception):
    """A file that is not read, with the reason in a few words."""


@dataclass(frozen=True)
class ProjectFile:
    """A file as it was read once: what is shown, hashed and parsed is the same."""

    path: Path
    resolved: Path
    content: bytes

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    def text(self) -> str:
        """The content as text. Raises RefusedFileError."""
        try:
            text = self.content.decode("utf-8")
        except UnicodeDecodeError as error:
            raise RefusedFileError("it is not UTF-8") from error
        if any(sum(map(line.count, ".[{")) > MAX_MARKS_IN_A_LINE for line in text.split("\n")):
            raise RefusedFileError(f"a line of it has more than {MAX_MARKS_IN_A_LINE} dots and brackets")
        return text


def read_project_file(path: Path, project: Path) -> ProjectFile | None:
    """The file at `path`, None if there is none. Raises RefusedFileError if it is not a regular file of at most 64 KB
    that lies, its links followed, within the project."""
    if not os.path.lexists(path):
        return None
    try:
        resolved = path.resolve(strict=True)
        if not resolved.is_relative_to(project.resolve()):
            raise RefusedFileError("it is a link out of the project")
        return ProjectFile(path, resolved, _content(resolved))
    except (OSError, RuntimeError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "its links lead nowhere"
        raise RefusedFileError(f"it cannot be read ({reason})") from error


def _content(path: Path) -> bytes:
    # Looked at before it is opened, because opening a device can already do something; and again once it is open,
    # because it may have been exchanged. Opened without blocking: a FIFO would wait for a writer for ever.
    _check(path.stat())
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    with os.fdopen(os.open(path, flags), "rb") as file:
        _check(os.fstat(file.fileno()))
        content = file.read(MAX_FILE_BYTES + 1)
    if len(content) > MAX_FILE_BYTES:
        raise RefusedFileError(f"it has more than {MAX_FILE_BYTES // 1024} KB")
    return content


def _check(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RefusedFileError("it is not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise RefusedFileError(f"it has more than {MAX_FILE_BYTES // 1024} KB")
