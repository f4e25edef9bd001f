"""Reads untrusted files of a project safely: only regular files within the project and of limited size, without
blocking on a FIFO or device, and without text that a parser would need minutes for."""

from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from contextstash.base.regular_files import read_regular

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
        return ProjectFile(path, resolved, read_regular(resolved, MAX_FILE_BYTES, follow_links=False))
    except (OSError, RuntimeError, ValueError) as error:
        raise RefusedFileError(_reason(error)) from error


def _reason(error: Exception) -> str:
    if not isinstance(error, OSError) or not error.strerror:
        return "it cannot be read (its links lead nowhere)"
    known = {errno.EINVAL: "it is not a regular file", errno.EFBIG: f"it has more than {MAX_FILE_BYTES // 1024} KB"}
    return known.get(error.errno or 0, f"it cannot be read ({error.strerror})")
