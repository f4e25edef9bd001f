"""Which kind of transcript a file is: told by its content, not by its name."""

from __future__ import annotations

import json
from pathlib import Path

from contextstash.hosts.claude_code import ClaudeCodeReader
from contextstash.hosts.codex import CodexReader
from contextstash.hosts.pi import PiReader
from contextstash.hosts.plain import PlainReader, whole_document
from contextstash.hosts.transcript import Line, TranscriptReader, split_lines
from contextstash_storage.errors import BadInputError

READERS: tuple[TranscriptReader, ...] = (CodexReader(), PiReader(), ClaudeCodeReader(), PlainReader())

HEAD = 1_000_000
"""Bytes of a file's head by which its kind is told."""


def recognize(path: Path) -> TranscriptReader:
    """The reader for a file. Raises BadInputError where none knows it, OSError where it can't be read."""
    lines = _first_lines(path)
    for reader in READERS:
        if lines and reader.knows(lines[:60]):
            return reader
    raise BadInputError(
        "This is no transcript that is known here: Claude Code, Codex and pi sessions, and files of OpenAI or"
        " Anthropic messages (a JSON list, an object with messages, or JSON lines) can be read."
    )


def _first_lines(path: Path) -> list[Line]:
    """Records at the head of a file, or the messages of one that is a single JSON document."""
    with path.open("rb") as file:
        head = file.read(HEAD)
        if not _begins_with_record(head):
            head += file.read()
            if (whole := whole_document(head)) is not None:
                return whole
    if len(head) <= HEAD and (whole := whole_document(head)) is not None:
        return whole
    lines, _ = split_lines(head[:HEAD], at_end=len(head) < HEAD)
    return lines or split_lines(head, at_end=True)[0]


def _begins_with_record(head: bytes) -> bool:
    first, newline, _ = head.lstrip().partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False
