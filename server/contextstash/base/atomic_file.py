"""Writes a file so that a reader sees the old content or the new one, never a part."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PRIVATE = 0o600
"""Readable and writable by the owner alone."""


def replace_file(path: Path, data: bytes, mode: int | None = None, *, follow_links: bool = True) -> None:
    """Write a file and the folders above it. A link is followed, or replaced without `follow_links`. Without `mode`
    permissions are kept, or PRIVATE for a new file. Raises OSError."""
    target = path.resolve() if follow_links else path
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if mode is None:
        mode = target.stat().st_mode & 0o777 if target.exists() else PRIVATE
    with replacement(target, mode) as file:
        file.write(data)


@contextmanager
def replacement(path: Path, mode: int = PRIVATE) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once all is written to it. After an exception `path` is as it was, and
    no temporary file is left. Raises OSError."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
