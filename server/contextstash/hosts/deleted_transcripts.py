"""Transcripts that their client has deleted: what it held is in the database alone."""

from __future__ import annotations

from datetime import date
from pathlib import Path


def deleted_by(source: str | None) -> date | None:
    """The day by which the file that a session was read from was deleted; None if it is there. That is the last day on
    which something was added to its folder or removed. Only files of lines count: other sources name a part of a
    database or of a folder."""
    if source is None or not source.endswith(".jsonl"):
        return None
    path = Path(source)
    if not path.is_absolute() or path.exists():
        return None
    folder = next((parent for parent in path.parents if parent.exists()), None)
    return date.today() if folder is None else date.fromtimestamp(folder.stat().st_mtime)
