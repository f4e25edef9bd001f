"""Opens regular files only, so that a FIFO or a device cannot block the reader, and resolves paths."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from contextstash_storage.errors import BadInputError

MAX_WHOLE_BYTES = 256 * 1024 * 1024
"""Largest file that is read whole, in bytes: about ten times the largest recording seen so far."""


def is_below(path: Path, folder: Path) -> bool:
    """Whether a path lies below this folder once links in both are resolved."""
    return resolved(path).is_relative_to(resolved(folder))


def resolved(path: Path) -> Path:
    """The path with links and `..` resolved. Raises BadInputError if it cannot be resolved."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
        raise BadInputError("Not read: the path cannot be resolved.") from error


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened for reading. Raises OSError if it is not one: opening a FIFO would wait for a writer
    forever, and a device such as /dev/zero has no end."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", path.name)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, max_bytes: int = MAX_WHOLE_BYTES) -> bytes:
    """The content of a regular file. Raises OSError if it is not one, or if it is larger than `max_bytes`."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", path.name)
    return data
