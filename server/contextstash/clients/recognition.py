"""Recognizes a transcript by its content, not only by its name, and finds the transcripts in a folder."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from contextstash.base.regular_files import MAX_WHOLE_BYTES, open_regular
from contextstash.clients.client import other_clients, own_clients
from contextstash.clients.others import MessagesReader
from contextstash.clients.transcripts import COMPRESSED, Head, Reader, parse_document, split_lines, unpacked
from contextstash_storage.errors import BadInputError

MAX_HEAD_BYTES = 1_000_000
"""Bytes at the start of a file by which its kind is recognized. Some first records hold long prompts."""

MAX_HEAD_RECORDS = 60
"""Records at the start of a file of lines by which its kind is recognized."""

SUFFIXES = (".jsonl", ".json", f".jsonl{COMPRESSED}")

KNOWN = (
    "sessions of Claude Code, Codex CLI, Gemini CLI, OpenCode and pi, and files of OpenAI, Anthropic or Gemini messages"
    " (a JSON list, an object with messages, or JSON lines)"
)


def recognize(path: Path) -> Reader:
    """The reader for a transcript. Raises BadInputError if none recognizes it, or if it is compressed and damaged;
    OSError if it cannot be read."""
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
    return (*(each.reader() for each in own_clients() if each.reader), MessagesReader())


def _head_of(path: Path) -> Head:
    if not path.is_file():
        if not path.exists() and not path.parent.is_file():  # neither a file nor a part of a database
            path.stat()
        return Head(path)
    if path.suffix == COMPRESSED:
        return _lines_head(path, unpacked(path)[:MAX_HEAD_BYTES])
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
    records = [line.record for line in split_lines(b"\n".join(raw[:MAX_HEAD_RECORDS]), at_end=True)[0]]
    return Head(path, records, records)


def _begins_with_record(head: bytes) -> bool:
    first, newline, _ = head.lstrip().partition(b"\n")
    return bool(newline) and isinstance(parse_document(first), dict)


def transcripts_in(path: Path) -> Iterator[Path]:
    """The transcripts in a folder, each once; those in a database; else the file itself, whatever it is.

    Every file with a transcript's suffix is found: its content shows what it is. Raises OSError if a named file is a
    database that cannot be read.
    """
    databases = {each.files.databases: each.files.in_database for each in own_clients() if each.files}
    if path.is_dir():
        for place, folders, files in os.walk(path):
            folders.sort()
            for pattern, sessions_in in databases.items():
                for name in fnmatch.filter(files, pattern):
                    yield from sessions_in(Path(place, name))
                    folders[:] = [each for each in folders if each != "storage"]  # its files from before the database
            for name in sorted(files):
                # A compressed file is superseded by the uncompressed one next to it.
                if name.endswith(SUFFIXES) and name.removesuffix(COMPRESSED) not in set(files) - {name}:
                    yield Path(place, name)
    elif path.suffix == ".db":
        for sessions_in in filter(None, databases.values()):
            yield from sessions_in(path)
    else:
        yield path
