"""Reads untrusted files of a project safely: only regular files within the project and of limited size, without
blocking on a FIFO or device, and without text that a parser would need minutes for."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_BYTES = 64 * 1024
"""About twenty times the size of a file with every setting."""

MAX_BRACKETS_IN_A_LINE = 200
"""Dots and opening brackets: the standard library's TOML parser takes 52 seconds for one key of 32,000 parts, PyYAML 6
seconds for 3,000 brackets; for 200, both take less than 0.01 seconds."""


class RefusedFileError(Exception):
    """A file that is not read, with the reason in a few words."""


@dataclass(frozen=True)
class ProjectFile:
    """A file that was read once, so that the same content is shown, hashed and parsed."""

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
        if any(sum(map(line.count, ".[{")) > MAX_BRACKETS_IN_A_LINE for line in text.split("\n")):
            raise RefusedFileError(f"a line of it has more than {MAX_BRACKETS_IN_A_LINE} dots and brackets")
        return text


def read_project_file(path: Path, project: Path) -> ProjectFile | None:
    """The file at `path`, None if it does not exist. Raises RefusedFileError if it is not a regular file of at most 64
    KB that is within the project after links are followed."""
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
    # Checked before it is opened, because opening a device can already have an effect; and again when it is open,
    # because it may have been replaced. Opened without blocking: opening a FIFO would wait for a writer forever.
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
