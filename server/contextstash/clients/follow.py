"""Follows transcripts: recognizes one by its content, records what is new in it, and finds the current one of a client.

The cursor of a transcript moves only with its last messages, so that a reading that is interrupted is done again.
"""

from __future__ import annotations

import asyncio
import copy
import fnmatch
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from contextstash.base.files import MAX_WHOLE_BYTES, is_below, open_regular, read_regular
from contextstash.clients.client import client, clients, own_clients, project_folder
from contextstash.clients.current import NOT_TOLD
from contextstash.clients.fields import Json, objects, parse_document
from contextstash.clients.transcripts import Batch, Line, Reader, Stamp, State, split_lines
from contextstash.messages.detection import FORMATS, detect_format, get_format
from contextstash.record.transcript_records import TranscriptMessage
from contextstash_storage.errors import BadInputError, BadMessageError, SessionDeletedError
from contextstash_storage.records import Cursor

if TYPE_CHECKING:
    from contextstash.stash import Stash

_log = logging.getLogger(__name__)

MAX_BYTES = 4 * 1024 * 1024
"""A file of lines is read in pieces of this size. (The store divides what is recorded at once, so that other processes
can write in between.)"""

_TAIL = 1024
"""Bytes before the cursor by which a file is recognized as the one that was read before."""

NOT_RECORDED = "%s: its session was deleted here and is not recorded again; `contextstash import %s` brings it back."
"""The warning, logged once, about a transcript whose session was deleted; both placeholders are for the file."""

MAX_HEAD_BYTES = 1_000_000
"""Bytes at the start of a file by which its kind is recognized. Some first records hold long prompts."""

MAX_HEAD_RECORDS = 60
"""Records at the start of a file of lines by which its kind is recognized."""


def recognize(path: Path) -> Reader:
    """The reader for a transcript. Raises BadInputError if none recognizes it, OSError if it cannot be read."""
    records = _first_records(path)
    for reader in readers():
        if reader.claims(path, records):
            return reader
    raise BadInputError(
        "Unrecognized transcript format. Supported: sessions of Claude Code, Codex CLI, Gemini CLI, OpenCode and pi,"
        " and files of OpenAI, Anthropic or Gemini messages (a JSON list, an object with messages, or JSON lines)."
    )


def readers() -> Iterator[Reader]:
    """The readers of all clients; that of plain messages, which claims what begins with a message, is the last one."""
    yield from (each.reader() for each in clients() if each.reader)
    yield MESSAGES


def _first_records(path: Path) -> list[Json]:
    """The first records of a file of lines; another one is an object, or stands in one as its `messages`."""
    if not path.is_file():
        if not path.exists() and not path.parent.is_file():  # neither a file nor a part of a database
            path.stat()
        return []
    with open_regular(path) as file:
        data = file.read(MAX_HEAD_BYTES)
        first, newline, _ = data.lstrip().partition(b"\n")
        has_lines = bool(newline) and isinstance(parse_document(first), dict)
        if not has_lines:
            data += file.read(MAX_WHOLE_BYTES)
    if not (has_lines and len(data) == MAX_HEAD_BYTES) and (document := parse_document(data)) is not None:
        return [document] if isinstance(document, dict) else [{"messages": document}]
    cut = data[: data.rfind(b"\n") + 1] if len(data) >= MAX_HEAD_BYTES else data
    # Lines that do not begin with a record are skipped.
    raw = [line for line in (cut or data).split(b"\n") if b"{" in line[:8]]
    return [line.record for line in split_lines(b"\n".join(raw[:MAX_HEAD_RECORDS]), at_end=True)[0]]


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
            yield from (Path(place, name) for name in sorted(files) if name.endswith((".jsonl", ".json")))
    elif path.suffix == ".db":
        for sessions_in in filter(None, databases.values()):
            yield from sessions_in(path)
    else:
        yield path


@dataclass(frozen=True, slots=True)
class IngestReport:
    """The result for one file. `session_id` is the session in it, None if it holds no message yet or was deleted here:
    then it is not recorded again, and `deleted` is true."""

    session_id: str | None
    recorded: int = 0
    duplicates: int = 0
    deleted: bool = False


async def ingest(
    stash: Stash,
    path: Path,
    *,
    reader: Reader | None = None,
    reduce: bool = True,
    wanted: bool = False,
) -> IngestReport:
    """Record what is new in this transcript since it was read last. Safe to repeat, and to interrupt at any point.

    Without `reduce` no prune or compaction of the session starts automatically. If the user asked for it, it is
    `wanted`: also a session that was deleted is recorded. Raises BadInputError if no reader recognizes the transcript,
    OSError if it cannot be read, and what the stash raises.
    """
    path = await asyncio.to_thread(path.resolve)
    if reader is None:
        reader = await asyncio.to_thread(recognize, path)
    cursor = await stash.store.get_cursor(str(path)) or Cursor(source=str(path))
    report, end = IngestReport(session_id=None), False
    while not end:
        batch, cursor, end = await asyncio.to_thread(_read, path, reader, cursor)
        recorded = duplicates = 0
        if batch is not None:
            try:
                appended = await stash.record_transcript(*batch, cursor, wanted=wanted)
            except SessionDeletedError:
                return replace(report, session_id=None, deleted=True)
            recorded, duplicates = len(appended.messages), appended.duplicates
            if reduce:
                await stash.reducer.after_recording(appended)
        session_id = cursor.state.get("session_id") or report.session_id
        report = IngestReport(session_id, report.recorded + recorded, report.duplicates + duplicates)
    return report


def _read(path: Path, reader: Reader, cursor: Cursor) -> tuple[Batch | None, Cursor, bool]:
    """What is new in a file of lines, in a piece of it; or all of another transcript, nothing if it has not changed.
    Returned with the position after it, and whether that is all."""
    if reader.load:
        stamp = reader.stamp(path)
        lines = reader.lines(path) if cursor.state.get("stamp") != stamp else []
        offset, end = 0, True
        known: dict[str, Any] = {"stamp": stamp}
    else:
        size = path.stat().st_size
        with open_regular(path) as file:
            # One that was rewritten is shorter, or has become longer since.
            if size < cursor.offset or cursor.state.get("tail") != _tail(file, cursor.offset):
                cursor = Cursor(source=cursor.source)
            lines, length, end = _new_lines(file, cursor, size)
            known = {"tail": _tail(file, offset := cursor.offset + length)}
    state: State = copy.deepcopy(cursor.state.get("reader", {}))
    batch = reader.read(lines, state, cursor.source) if lines else None
    session_id = cursor.state.get("session_id") or (batch.session.session_id if batch else None)
    kept = {"reader": state, **known, "session_id": session_id}
    return batch, Cursor(source=cursor.source, offset=offset, state=kept), end


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


def _tail(file: BinaryIO, end: int) -> str:
    """A digest of the bytes before this position."""
    file.seek(max(0, end - _TAIL))
    return hashlib.sha256(file.read(min(end, _TAIL))).hexdigest()


Find = Callable[..., list[Path]]
"""The transcript of the session that makes a tool call with this `_meta` first, or of the current one if none is given,
then those of its sub-agents; none if there is not one yet. Raises BadInputError if several may be meant."""


def find_transcripts(follow: str, project: Path | None = None) -> Find:
    """A function that finds the transcripts of a client's latest session in `project` (by default the one that the
    client started this process for). Raises BadInputError for a client that is not known, or keeps none."""
    files = client(follow).files
    if files is None:
        names = ", ".join(each.name for each in clients() if each.files)
        raise BadInputError(f"{follow} is not a client that can be followed. Known: {names}.")

    def find(call: Mapping[str, Any] | None = None) -> list[Path]:
        """Those that lie below the client's folder once links are resolved."""
        folder, place = files.folder(), project or project_folder(follow)
        found = files.sessions(folder, place, call or {})
        if len(found) > 1:
            raise BadInputError(NOT_TOLD)
        return [path for paths in found for path in paths if is_below(path, folder)]

    return find


class Follower:
    """Records what is new in one client's transcripts, each time `catch_up` is called."""

    def __init__(self, stash: Stash, find: Find) -> None:
        self._stash = stash
        self._find = find
        self._lock = asyncio.Lock()
        self._known: dict[Path, tuple[Reader, Stamp, str | None]] = {}  # of each transcript, as it was read last

    async def catch_up(self, call: Mapping[str, Any] | None = None) -> str | None:
        """Record what is new in the transcript of the session that makes a call with this `_meta`, and its sub-agents'
        files; the id of its session, None without a transcript or a message in it. A file that did not change
        costs one stat. Raises BadInputError if several sessions may be meant."""
        try:
            paths = await asyncio.to_thread(self._find, call)
        except OSError as error:
            _log.warning("The client's transcripts cannot be found: %s", error.strerror or error)
            return None
        async with self._lock:
            for path in paths:
                await self._catch_up(path)
            known = self._known.get(paths[0]) if paths else None
            return known[2] if known else None

    async def _catch_up(self, path: Path) -> None:
        known = self._known.get(path)
        try:
            reader = known[0] if known else await asyncio.to_thread(recognize, path)
            seen = await asyncio.to_thread(reader.stamp, path)
            if known and known[1] == seen:
                return
            report = await ingest(self._stash, path, reader=reader)
        except (OSError, BadInputError) as error:
            _log.warning("A transcript is not recorded: %s", error)
        else:
            if report.deleted and not (known and known[2] is None):
                _log.warning(NOT_RECORDED, path.name, path)
            self._known[path] = (reader, seen, report.session_id)


# Plain files of messages.

LISTS = ("messages", "input", "contents", "history", "clientHistory")
"""The fields of objects that hold messages: requests to the three kinds of API, and Gemini CLI's checkpoints, of
`/chat save` and of tool calls."""


def _claims(_: Path, records: Sequence[Json]) -> bool:
    messages = _messages_of(records[0] if len(records) == 1 else records)
    # An item of Responses is any object with a type: a list of nothing else may be something different.
    if not any("role" in each and {"content", "parts"} & each.keys() for each in messages):
        return False
    try:
        _format_of(messages)
    except BadMessageError:
        return False
    return True


def _format_of(messages: Iterable[Json]) -> str:
    """The format of the messages that can be read; those that cannot are refused one by one when they are recorded."""
    readable = [each for each in messages if not all(get_format(name).misfit(each) for name in FORMATS)]
    return detect_format(readable) if readable else FORMATS[0]


def _load(path: Path) -> list[Json]:
    data = read_regular(path)
    document = parse_document(data)
    if document is None:
        return [line.record for line in split_lines(data, at_end=True)[0]]
    return _messages_of(document)


def _said(lines: Iterable[Line], state: State, source: str) -> list[TranscriptMessage]:
    """The messages as they are: they have no ids of their own. If some were replaced, the view holds the new ones, and
    the old ones stay in the history."""
    bodies = [line.record for line in lines]
    if bodies:
        found = state.setdefault("format", _format_of(bodies))
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(source).stem).strip("-")[:80] or "session"
        digest = hashlib.sha256(source.encode("utf-8", "surrogatepass")).hexdigest()[:6]  # files may have the same name
        state.update(session=f"{stem}-{digest}", agent="gemini" if found == "gemini" else None)
    return [TranscriptMessage(body) for body in bodies]


MESSAGES = Reader("messages", None, _claims, _said, _load)
"""A list of provider messages, which is the whole conversation."""


def _messages_of(document: object) -> list[Json]:
    """The messages of a document, a list or an object with one; none if it does not hold a list of messages."""
    if isinstance(document, dict):
        document = next((found for key in LISTS if isinstance(found := document.get(key), list)), [document])
    found = objects(document)
    return found if isinstance(document, list) and len(found) == len(document) else []
