"""The project of a session, as its client's transcript names it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from contextstash.files.regular_files import open_regular
from contextstash.hosts.readers.transcript import split_lines, text_of

MAX_HEAD_BYTES = 200_000
"""Bytes at the start of a transcript in which its folder is searched for. Claude Code and Codex name it in
their first records."""


def project_of(source: str | None) -> str | None:
    """The folder in which the client ran, None if the transcript is gone or does not name one."""
    if source is None or not source.endswith(".jsonl"):
        return None
    try:
        with open_regular(Path(source)) as file:
            lines, _ = split_lines(file.read(MAX_HEAD_BYTES), at_end=True)
    except OSError:
        return None
    return next((found for line in lines if (found := _folder(line.record))), None)


def _folder(record: dict[str, Any]) -> str | None:
    payload = record.get("payload")
    return text_of(record.get("cwd")) or (text_of(payload.get("cwd")) if isinstance(payload, dict) else None)
