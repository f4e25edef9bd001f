"""New files that were not finished when the process that wrote them ended: overwritten and removed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

UNFINISHED = ".converting"
"""How the name of a file ends that becomes the database once it is whole."""

OVERWRITTEN_BYTES = 1 << 20
"""How much is overwritten at a time."""


def remove_unfinished(path: Path) -> None:
    """Remove what is left of new files of a database that is open here, so that none is being written."""
    for file in path.parent.glob(f"{path.name}.*{UNFINISHED}"):
        remove(file)


def remove(file: Path) -> None:
    """Overwrite and remove a file, if it is there."""
    with suppress(OSError):
        opened = os.open(file, os.O_RDWR | getattr(os, "O_BINARY", 0))
        try:
            overwrite(opened)
        finally:
            os.close(opened)
        file.unlink(missing_ok=True)


def overwrite(file: int) -> None:
    """Fill a file with zeros, so that what was in it is not in the free blocks of the disk."""
    size = os.lseek(file, 0, os.SEEK_END)
    os.lseek(file, 0, os.SEEK_SET)
    for start in range(0, size, OVERWRITTEN_BYTES):
        os.write(file, bytes(min(OVERWRITTEN_BYTES, size - start)))
    os.fsync(file)
