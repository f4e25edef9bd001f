"""Files: replaced so that a reader sees the old content or the new one, and opened only if they are regular, so that
a FIFO or a device cannot block the reader."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, TextIO

from contextstash_storage.errors import BadInputError

PRIVATE = 0o600
"""Readable and writable by the owner alone."""


def replace_file(path: Path, data: bytes, mode: int | None = None, *, follow_links: bool = True) -> None:
    """Write a file and the folders above it: after an error it is as it was, and no temporary file is left. A link is
    followed, or replaced without `follow_links`. Without `mode` permissions are kept, or PRIVATE for a new file. Raises
    OSError."""
    target = path.resolve() if follow_links else path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(mode)
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


MAX_WHOLE_BYTES = 256 * 1024 * 1024
"""Largest file that is read whole, in bytes: about ten times the largest recording seen so far."""


_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def is_below(path: Path, folder: Path) -> bool:
    """Whether a path lies below this folder once links in both are resolved."""
    return resolved(path).is_relative_to(resolved(folder))


def resolved(path: Path) -> Path:
    """The path with links and `..` resolved. Raises BadInputError if it cannot be resolved."""
    try:
        return path.resolve()
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL in the name
        raise BadInputError("Not read: the path cannot be resolved.") from error


def open_regular(path: Path, *, follow_links: bool = True) -> BinaryIO:
    """A regular file, opened for reading. Raises OSError if it is not one: opening a FIFO would wait for a writer
    forever, and a device such as /dev/zero has no end."""
    # Checked before it is opened, because opening a device can already have an effect; and again when it is open,
    # because it may have been replaced.
    try:
        _check_kind(path.stat(follow_symlinks=follow_links), path)
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.ENOENT, "no file can have this name", path.name) from error
    descriptor = os.open(path, _READ if follow_links else _READ | getattr(os, "O_NOFOLLOW", 0))
    try:
        _check_kind(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, max_bytes: int = MAX_WHOLE_BYTES, *, follow_links: bool = True) -> bytes:
    """The content of a regular file. Raises OSError if it is not one, or if it is larger than `max_bytes`."""
    with open_regular(path, follow_links=follow_links) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"larger than {max_bytes:,} bytes", path.name)
    return data


def open_log(path: Path) -> TextIO:
    """A log in its folder, opened for appending and readable only by its owner from its first byte on. Raises OSError
    if it is a link, which another user may have put into a shared folder, or a FIFO, which would block."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, flags, PRIVATE)
    try:
        found = os.fstat(descriptor)
        _check_kind(found, path)
        if found.st_mode & 0o077 and hasattr(os, "fchmod"):
            os.fchmod(descriptor, PRIVATE)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")
    except BaseException:
        os.close(descriptor)
        raise


def _check_kind(status: os.stat_result, path: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", path.name)
