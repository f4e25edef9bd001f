"""The project of a session, as its client names it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contextstash.base.files import open_regular

MAX_HEAD_BYTES = 200_000
"""Bytes at the start of a transcript in which its folder is searched for. Claude Code and Codex name it in
their first records."""


def project_of(source: str | None) -> str | None:
    """The folder in which the client ran, None if the transcript is gone or does not name one."""
    if source is None or not source.endswith(".jsonl"):
        return None
    from contextstash.clients.transcripts import split_lines  # loads pydantic-core, which most commands need not

    try:
        with open_regular(Path(source)) as file:
            lines, _ = split_lines(file.read(MAX_HEAD_BYTES), at_end=True)
    except OSError:
        return None
    return next((found for line in lines if (found := _folder(line.record))), None)


def _folder(record: dict[str, Any]) -> str | None:
    payload = record.get("payload")
    found = record.get("cwd") or (payload.get("cwd") if isinstance(payload, dict) else None)
    return found if isinstance(found, str) and found.strip() else None


def project_folder(environment: Mapping[str, str], client: str | None = None) -> Path:
    """The project that this client, or any if none is given, names to the programs that it starts, else the current
    folder. Only Claude Code names one, and one that was started in its shell inherits the name."""
    named = environment.get("CLAUDE_PROJECT_DIR") if client in ("claude-code", None) else None
    return Path(named) if named else Path.cwd()
