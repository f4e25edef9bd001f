"""Transcripts that their client has deleted: what it held is in the database alone."""

from __future__ import annotations

from pathlib import Path


def is_deleted(source: str | None) -> bool:
    """Whether the file that a session was read from is gone. Only files of lines count: other sources name a part of a
    database or of a folder."""
    return source is not None and source.endswith(".jsonl") and Path(source).is_absolute() and not Path(source).exists()
