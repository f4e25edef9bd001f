"""Recognizes the kind of a transcript by its content, not only by its name."""

from __future__ import annotations

import json
from pathlib import Path

from contextstash.files.regular_files import MAX_WHOLE_BYTES, open_regular
from contextstash.hosts.readers.claude_code import ClaudeCodeReader
from contextstash.hosts.readers.codex import SUFFIX, CodexReader, CompressedCodexReader
from contextstash.hosts.readers.documents import DocumentReader, parse_document
from contextstash.hosts.readers.gemini import GeminiReader
from contextstash.hosts.readers.opencode import OpenCodeReader
from contextstash.hosts.readers.pi import PiReader
from contextstash.hosts.readers.plain import PlainReader
from contextstash.hosts.readers.transcript import Line, TranscriptReader, first_records
from contextstash_storage.errors import BadInputError

Reader = TranscriptReader | DocumentReader

LINE_READERS: tuple[TranscriptReader, ...] = (CodexReader(), PiReader(), ClaudeCodeReader())
DOCUMENT_READERS: tuple[DocumentReader, ...] = (
    CompressedCodexReader(),
    OpenCodeReader(),
    GeminiReader(),
    PlainReader(),
)

MAX_HEAD_BYTES = 1_000_000
"""Bytes at the start of a file by which its kind is recognized. Some first records hold long prompts."""

MAX_HEAD_RECORDS = 60
"""Records at the start of a file of lines by which its kind is recognized."""

KNOWN = (
    "sessions of Claude Code, Codex CLI, Gemini CLI, OpenCode and pi, and files of OpenAI, Anthropic or Gemini messages"
    " (a JSON list, an object with messages, or JSON lines)"
)


def recognize(path: Path) -> Reader:
    """The reader for a transcript. Raises BadInputError if none recognizes it, OSError if it cannot be read."""
    reader = _reader_of(path)
    if reader is None:
        raise BadInputError(f"Unrecognized transcript format. Supported: {KNOWN}.")
    return reader


def _reader_of(path: Path) -> Reader | None:
    if not path.is_file():
        if not path.exists() and not path.parent.is_file():
            path.stat()
        return _claiming(path, None)
    if path.name.endswith(SUFFIX):
        return _claiming(path, None)
    with open_regular(path) as file:
        head = file.read(MAX_HEAD_BYTES)
        if not _begins_with_record(head):
            head += file.read(MAX_WHOLE_BYTES)
        elif len(head) == MAX_HEAD_BYTES:
            return _of_lines(path, head)
    document = parse_document(head)
    if document is None:
        return _of_lines(path, head)
    return _claiming(path, document) or _knowing([Line(document, "")] if isinstance(document, dict) else [])


def _of_lines(path: Path, head: bytes) -> Reader | None:
    lines = _first_lines(head)
    return _knowing(lines) or _claiming(path, [line.record for line in lines])


def _claiming(path: Path, document: object) -> DocumentReader | None:
    return next((reader for reader in DOCUMENT_READERS if reader.claims(path, document)), None)


def _knowing(lines: list[Line]) -> TranscriptReader | None:
    return next((reader for reader in LINE_READERS if lines and reader.knows(lines)), None)


def _first_lines(head: bytes) -> list[Line]:
    """The records at the start; lines that do not begin with a record are skipped."""
    cut = head if len(head) < MAX_HEAD_BYTES else head[: head.rfind(b"\n") + 1] or head
    records = b"\n".join(line for line in cut.split(b"\n") if b"{" in line[:8])
    return first_records(records, MAX_HEAD_RECORDS)


def _begins_with_record(head: bytes) -> bool:
    first, newline, _ = head.lstrip().partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False
