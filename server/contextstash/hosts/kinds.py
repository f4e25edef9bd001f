"""Which kind of transcript a file is: told by its content, not by its name."""

from __future__ import annotations

from pathlib import Path

from contextstash.hosts.claude_code import ClaudeCodeReader
from contextstash.hosts.codex import CodexReader
from contextstash.hosts.pi import PiReader
from contextstash.hosts.plain import PlainReader, whole_document
from contextstash.hosts.transcript import TranscriptReader, split_lines
from contextstash_storage.errors import BadInputError

READERS: tuple[TranscriptReader, ...] = (CodexReader(), PiReader(), ClaudeCodeReader(), PlainReader())

HEAD = 1_000_000
"""Bytes of a file's head by which its kind is told."""


def recognize(path: Path) -> TranscriptReader:
    """The reader for a file. Raises BadInputError where none knows it, OSError where it can't be read."""
    with path.open("rb") as file:
        head = file.read(HEAD)
    lines, _ = split_lines(head, at_end=len(head) < HEAD)
    if whole := whole_document(head if len(head) < HEAD else path.read_bytes()):
        lines = whole
    for reader in READERS:
        if lines and reader.knows(lines[:60]):
            return reader
    raise BadInputError(
        "This is no transcript that is known here: Claude Code, Codex and pi sessions, and files of OpenAI or"
        " Anthropic messages (a JSON list, an object with messages, or JSON lines) can be read."
    )
