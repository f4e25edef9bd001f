"""Records what is new in a transcript file into the stash."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from contextstash.files.regular_files import open_regular
from contextstash.hosts.readers.documents import DocumentReader
from contextstash.hosts.readers.kinds import Reader, recognize
from contextstash.hosts.readers.transcript import Batch, Line, State, TranscriptReader, split_lines
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import SessionDeletedError
from contextstash_storage.records import Cursor

if TYPE_CHECKING:
    from contextstash.service.stash import Stash

MAX_MESSAGES = 500
MAX_BYTES = 4 * 1024 * 1024
"""The most that is recorded in one transaction, so that other processes can write in between. Files are read in pieces
of the same size."""

_HEAD = 1024
"""Bytes at the start of a file by which it is recognized as the one that was read before."""

NOT_RECORDED = "%s: its session was deleted here and is not recorded again; `contextstash import %s` brings it back."
"""The warning, logged once, about a transcript whose session was deleted; both placeholders are for the file."""

Part = tuple[TranscriptSession, Sequence[TranscriptMessage]]


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result for one file. `session_id` is the session in it, None if it holds no message yet or was deleted here:
    then it is not recorded again, and `deleted` is true."""

    session_id: str | None
    recorded: int = 0
    duplicates: int = 0
    deleted: bool = False


@dataclass(frozen=True, slots=True)
class _Chunk:
    """The result of one read of a file. `cursor` is the position after it, `end` is true if that is all."""

    parts: tuple[Part, ...]
    before: Cursor
    cursor: Cursor
    end: bool

    @property
    def session_id(self) -> str | None:
        found = self.cursor.state.get("session_id")
        return found if isinstance(found, str) else None


async def ingest(
    stash: Stash,
    path: Path,
    *,
    reader: Reader | None = None,
    on_progress: Callable[[int], None] | None = None,
    reduce: bool = True,
    wanted: bool = False,
) -> IngestReport:
    """Record what is new in this transcript since it was read last. Safe to repeat, and to interrupt at any point.

    `on_progress` is called with the bytes read, with 0 for a transcript that is read whole. Without `reduce` no prune
    or compaction of the session starts automatically. If the user asked for it, it is `wanted`: also a session that was
    deleted is recorded. Raises BadInputError if no reader recognizes the transcript, OSError if it cannot be read, and
    what the stash raises.
    """
    path = await asyncio.to_thread(path.resolve)
    if reader is None:
        reader = await asyncio.to_thread(recognize, path)
    cursor = await stash.read_cursor(str(path)) or Cursor(source=str(path))
    report = IngestReport(session_id=None)
    async with aclosing(_chunks(path, reader, cursor)) as chunks:
        async for chunk in chunks:
            report = await _record(stash, chunk, report, reduce=reduce, wanted=wanted)
            if report.deleted:
                break
            if on_progress is not None:
                on_progress(chunk.cursor.offset)
    return report


async def _chunks(path: Path, reader: Reader, cursor: Cursor) -> AsyncGenerator[_Chunk, None]:
    """The chunks of a file. Each is read while the one before it is recorded."""
    reading = asyncio.create_task(asyncio.to_thread(_read, path, reader, cursor))
    try:
        while not (chunk := await reading).end:
            reading = asyncio.create_task(asyncio.to_thread(_read, path, reader, chunk.cursor))
            yield chunk
        yield chunk
    finally:
        reading.cancel()


async def _record(stash: Stash, chunk: _Chunk, report: IngestReport, **asked: bool) -> IngestReport:
    """The cursor moves only with the last part: if the process ends before that, all parts are read again."""
    for place, (session, messages) in enumerate(chunk.parts):
        last = place == len(chunk.parts) - 1
        cursor = chunk.cursor if last else chunk.before
        try:
            result = await stash.record_transcript(session, messages, cursor, **asked)
        except SessionDeletedError:
            report = replace(report, deleted=True)
            continue
        report = replace(
            report, recorded=report.recorded + result.recorded, duplicates=report.duplicates + result.duplicates
        )
    found = None if report.deleted else chunk.session_id or report.session_id
    return replace(report, session_id=found)


def _read(path: Path, reader: Reader, cursor: Cursor) -> _Chunk:
    if isinstance(reader, DocumentReader):
        return _read_whole(path, reader, cursor)
    return _read_chunk(path, reader, cursor)


def _read_chunk(path: Path, reader: TranscriptReader, cursor: Cursor) -> _Chunk:
    size = path.stat().st_size
    with open_regular(path) as file:
        if not _continues(file.read(_HEAD), size, cursor):
            cursor = Cursor(source=cursor.source)
        lines, length, end = _new_lines(file, cursor, size)
        file.seek(0)
        head = file.read(min(_HEAD, cursor.offset + length))
    state: State = copy.deepcopy(cursor.state.get("reader", {}))
    parts = tuple(_parts(reader.read(lines, state, cursor.source)))
    session_id = cursor.state.get("session_id") or (parts[0][0].session_id if parts else None)
    after = Cursor(
        source=cursor.source,
        offset=cursor.offset + length,
        state={"reader": state, "head": [len(head), _digest(head)], "session_id": session_id},
    )
    return _Chunk(parts, cursor, after, end)


def _read_whole(path: Path, reader: DocumentReader, cursor: Cursor) -> _Chunk:
    """All of a transcript that is not a file of lines; nothing if it has not changed since the last reading."""
    stamp = reader.stamp(path)
    state: State = copy.deepcopy(cursor.state.get("reader", {}))
    lines = reader.load(path) if cursor.state.get("stamp") != stamp else []
    parts = tuple(_parts(reader.read(lines, state, cursor.source))) if lines else ()
    session_id = cursor.state.get("session_id") or (parts[0][0].session_id if parts else None)
    after = Cursor(source=cursor.source, state={"reader": state, "stamp": stamp, "session_id": session_id})
    return _Chunk(parts, cursor, after, end=True)


def _new_lines(file: BinaryIO, cursor: Cursor, size: int) -> tuple[list[Line], int, bool]:
    """The records after the cursor, their length in bytes, and whether they are all. At most `MAX_BYTES` are read,
    more only if a single line is longer."""
    length_read = MAX_BYTES
    while True:
        file.seek(cursor.offset)
        data = file.read(length_read)
        end = len(data) < length_read or cursor.offset + len(data) >= size
        lines, length = split_lines(data, at_end=end)
        if length or end:
            return lines, length, end
        length_read *= 2


def _continues(head: bytes, size: int, cursor: Cursor) -> bool:
    """Whether the file is still the one that the cursor belongs to, and has not become shorter."""
    length, digest = cursor.state.get("head", (0, _digest(b"")))
    return size >= cursor.offset and _digest(head[:length]) == digest


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _parts(batches: Sequence[Batch]) -> Iterator[Part]:
    """The batches in parts of limited size, except a whole conversation, which cannot be told in parts. A batch without
    messages is one part: its session may be new or changed."""
    for batch in batches:
        for run in [batch.messages] if batch.session.whole else list(_runs(batch.messages)) or [[]]:
            yield batch.session, run


def _runs(messages: Sequence[TranscriptMessage]) -> Iterator[list[TranscriptMessage]]:
    run: list[TranscriptMessage] = []
    size = 0
    for message in messages:
        length = len(json.dumps(message.body, ensure_ascii=False))
        if run and (len(run) >= MAX_MESSAGES or size + length > MAX_BYTES):
            yield run
            run, size = [], 0
        run.append(message)
        size += length
    if run:
        yield run
