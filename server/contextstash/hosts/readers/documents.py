"""Transcripts that are read whole, and which of their messages are new since the last reading."""

from __future__ import annotations

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from contextstash.files.regular_files import read_regular
from contextstash.hosts.readers.transcript import Batch, Line, State, digest_of, split_lines, text_of
from contextstash.json.json_text import lenient_value
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.records import Usage

MAX_TAIL_MESSAGES = 400
"""How many of the last messages are remembered one by one, to find where the conversation was rewound. It bounds the
reader's state; a longer rewind is read as new messages."""

Json = dict[str, Any]

Stamp = list[int]
"""Sizes and times that change whenever the transcript on disk changes."""

Conversation = tuple[TranscriptSession, Iterable[TranscriptMessage]]

_log = logging.getLogger(__name__)


class DocumentReader(ABC):
    """Reads one kind of transcript that is read whole: a JSON document, a folder, or a part of a database."""

    name: str

    @abstractmethod
    def claims(self, path: Path, document: object) -> bool:
        """Whether this is of this kind. `document` is the file's JSON value, its records if it is a file of lines,
        None if it is not a file, or not JSON. Raises OSError if it cannot be read."""

    def stamp(self, path: Path) -> Stamp:
        """When the transcript changed last, and how large it is. Raises OSError if it does not exist."""
        found = path.stat()
        return [found.st_mtime_ns, found.st_size]

    def load(self, path: Path) -> list[Line]:
        """All records, in order. Raises OSError if they cannot be read."""
        return [Line(record, digest_of(json.dumps(record).encode())) for record in self.records(path)]

    def records(self, path: Path) -> Iterable[Json]:
        """All records, by default the objects of a list. Raises OSError if they cannot be read."""
        return objects(load_document(path))

    def conversation(self, lines: list[Line], source: str) -> Conversation:
        """The session of these records, and all its messages. A reader has this or its own `read`."""
        raise NotImplementedError

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        """The messages that are new since the last reading; updates `state`. `lines` are all records of the
        transcript."""
        session, messages = self.conversation(list(lines), source)
        fresh = unseen(list(messages), state)
        return [Batch(session, fresh)] if fresh else []


def parse_document(data: bytes) -> object:
    """The JSON value of these bytes; None if they are not valid JSON."""
    try:
        return lenient_value(data)
    except (ValueError, RecursionError):
        return None


def load_document(path: Path) -> object:
    """The JSON value in this file; None if it is not valid JSON, for example while it is being written. Raises
    OSError."""
    document = parse_document(read_regular(path))
    if document is None:
        _log.warning("Skipped a file of a transcript that is not valid JSON at present: %s", path.name)
    return document


def load_lines(path: Path) -> list[Line]:
    """The records of a file of JSON lines. Raises OSError."""
    return split_lines(read_regular(path), at_end=True)[0]


def objects(value: object) -> list[Json]:
    """The objects in a list; none if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(record: object, *names: str) -> Json:
    """The object found under these names, each inside the previous one; empty if it does not exist."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def title_of(value: object) -> str | None:
    """The beginning of a title, None if there is none."""
    return (text_of(value) or "")[:200] or None


def usage_of(prompt: int, completion: int, cached: int = 0, written: int = 0) -> Usage | None:
    """The usage of a request; None if no prompt is reported. `prompt` includes cached tokens."""
    if not prompt:
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, cache_write_tokens=written)


def count_of(record: Json, *names: str) -> int:
    """The first of these fields that holds a positive number; 0 if none does."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def unseen(messages: Sequence[TranscriptMessage], state: State) -> list[TranscriptMessage]:
    """Returns the messages that `state` does not contain yet, and adds them to `state`.

    If other messages replaced known ones, the first new message names the message that the conversation was rewound
    to. If some of the replaced messages still exist at another position, there was no rewind.
    """
    digests = [_short(message.key or "") for message in messages]
    known = _known(digests, state)
    fresh = list(messages[known:])
    gone = set(_tail(state)[known - _base(state) :]) if known >= _base(state) else set()
    if fresh and gone and gone.isdisjoint(digests[known:]) and fresh[0].rewind_to_key is None:
        before = messages[known - 1].key if known else ""
        fresh[0] = replace(fresh[0], rewind_to_key=before)
    if fresh:
        base = max(0, len(digests) - MAX_TAIL_MESSAGES)
        state.update(count=len(digests), head=_digest(digests[:base]), tail=" ".join(digests[base:]))
    return fresh


def _known(digests: Sequence[str], state: State) -> int:
    """How many of the first messages are unchanged since the last reading."""
    base = _base(state)
    if len(digests) < base or _digest(digests[:base]) != state.get("head", _digest([])):
        return 0
    known = base
    for before, now in zip(_tail(state), digests[base:], strict=False):
        if before != now:
            break
        known += 1
    return known


def _tail(state: State) -> list[str]:
    return str(state.get("tail", "")).split()


def _base(state: State) -> int:
    return int(state.get("count", 0)) - len(_tail(state))


def _short(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _digest(digests: Sequence[str]) -> str:
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:20]
