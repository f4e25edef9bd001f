"""Sorts a host's files by when they were written."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


def newest_first(files: Iterable[Path], folder: Path) -> list[Path]:
    """The files in this folder, the one written last first. Links to files outside the folder and files that were
    deleted meanwhile are left out."""
    known = [(written, file) for file in files if (written := _written(file, folder)) is not None]
    return [file for _, file in sorted(known, key=lambda found: found[0], reverse=True)]


def is_within(file: Path, folder: Path) -> bool:
    """Whether this is a file in the folder or below it, after links are followed."""
    return _written(file, folder) is not None


def _written(file: Path, folder: Path) -> int | None:
    try:
        if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
            return None
        return file.stat().st_mtime_ns
    except (OSError, RuntimeError):
        return None
