"""Recognizes a transcript by its content, not only by its name, and finds the transcripts in a folder."""

from __future__ import annotations

import fnmatch
import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from contextstash.base.regular_files import MAX_WHOLE_BYTES, open_regular
from contextstash.clients.client import client, other_clients
from contextstash.clients.codex import CompressedCodexReader
from contextstash.clients.message_lists import MessagesReader
from contextstash.clients.opencode import DATABASES, sessions_in_database
from contextstash.clients.transcripts import Head, Reader, first_records, parse_document
from contextstash_storage.errors import BadInputError

MAX_HEAD_BYTES = 1_000_000
"""Bytes at the start of a file by which its kind is recognized. Some first records hold long prompts."""

MAX_HEAD_RECORDS = 60
"""Records at the start of a file of lines by which its kind is recognized."""

SUFFIXES = (".jsonl", ".json", ".jsonl.zst")

KNOWN = (
    "sessions of Claude Code, Codex CLI, Gemini CLI, OpenCode and pi, and files of OpenAI, Anthropic or Gemini messages"
    " (a JSON list, an object with messages, or JSON lines)"
)


def recognize(path: Path) -> Reader:
    """The reader for a transcript. Raises BadInputError if none recognizes it, OSError if it cannot be read."""
    head = _head_of(path)
    for reader in readers():
        if reader.claims(head):
            return reader
    for other in other_clients():
        if other.reader is not None and (found := other.reader()).claims(head):
            return found
    raise BadInputError(f"Unrecognized transcript format. Supported: {KNOWN}.")


@cache
def readers() -> Sequence[Reader]:
    """The readers of our own clients, and at last that of plain messages, which claims what begins with a message."""
    own = [client(name).reader for name in ("codex", "pi", "claude-code", "opencode", "gemini")]
    return (CompressedCodexReader(), *(make() for make in own if make), MessagesReader())


def _head_of(path: Path) -> Head:
    if not path.is_file():
        if not path.exists() and not path.parent.is_file():
            path.stat()
        return Head(path)
    if path.name.endswith(".zst"):
        return Head(path)
    with open_regular(path) as file:
        data = file.read(MAX_HEAD_BYTES)
        if not _begins_with_record(data):
            data += file.read(MAX_WHOLE_BYTES)
        elif len(data) == MAX_HEAD_BYTES:
            return _lines_head(path, data)
    document = parse_document(data)
    if document is None:
        return _lines_head(path, data)
    return Head(path, document, [document] if isinstance(document, dict) else ())


def _lines_head(path: Path, data: bytes) -> Head:
    """The records at the start; lines that do not begin with a record are skipped."""
    cut = data if len(data) < MAX_HEAD_BYTES else data[: data.rfind(b"\n") + 1] or data
    raw = [line for line in cut.split(b"\n") if b"{" in line[:8]]
    records = [line.record for line in first_records(b"\n".join(raw), MAX_HEAD_RECORDS)]
    return Head(path, records, records)


def _begins_with_record(head: bytes) -> bool:
    first, newline, _ = head.lstrip().partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(first), dict)
    except (ValueError, RecursionError):
        return False


def transcripts_in(path: Path) -> Iterator[Path]:
    """The transcripts in a folder, each once; those in a database; else the file itself, whatever it is.

    Every file with a transcript's suffix is found: its content shows what it is. Raises OSError if a named file is a
    database that cannot be read.
    """
    if path.is_dir():
        yield from _in_folder(path)
    elif path.suffix == ".db":
        yield from sessions_in_database(path)
    else:
        yield path


def _in_folder(folder: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(folder):
        here = Path(place)
        folders.sort()
        databases = fnmatch.filter(files, DATABASES)
        for name in databases:
            yield from sessions_in_database(here / name)
        if databases or here.name == "opencode":  # the messages of versions before 1.2, which are moved into a database
            folders[:] = [name for name in folders if name != "storage"]
        for name in sorted(files):
            # A compressed rollout is superseded by the uncompressed one next to it.
            if name.endswith(SUFFIXES) and name.removesuffix(".zst") not in set(files) - {name}:
                yield here / name
