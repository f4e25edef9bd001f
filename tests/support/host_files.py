"""Files as hosts write them, and the messages that readers find in them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from contextstash.formats import get_format
from contextstash.hosts.readers.documents import DocumentReader
from contextstash.hosts.readers.kinds import recognize
from contextstash.hosts.readers.transcript import State, split_lines
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession


def write_json(path: Path, document: Any) -> Path:
    """Write this document to a file; creates the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def write_lines(path: Path, records: Sequence[Any]) -> Path:
    """Write each record as a line of a file; creates the folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def read(path: Path, state: State | None = None) -> list[TranscriptMessage]:
    """The new messages that the matching reader finds; each must be valid in its format."""
    return [message for _, messages in _batches(path, {} if state is None else state) for message in messages]


def session_of(path: Path) -> TranscriptSession:
    [(session, _)] = _batches(path, {})
    return session


def _batches(path: Path, state: State) -> list[tuple[TranscriptSession, list[TranscriptMessage]]]:
    reader = recognize(path)
    lines = reader.load(path) if isinstance(reader, DocumentReader) else split_lines(path.read_bytes(), at_end=True)[0]
    batches = reader.read(lines, state, str(path))
    for batch in batches:
        for message in batch.messages:
            get_format(batch.session.format).read(message.body)
    assert json.loads(json.dumps(state)) == state
    return [(batch.session, batch.messages) for batch in batches]


def keys(messages: Sequence[TranscriptMessage]) -> list[str]:
    return [str(message.key) for message in messages]


def roles(messages: Sequence[TranscriptMessage]) -> list[str]:
    return [str(message.body["role"]) for message in messages]
