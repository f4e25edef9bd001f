"""Follows transcripts: records what is new in one, and finds the current one of the client that started this process.

The cursor of a transcript moves only with its last messages, so that a reading that is interrupted is done again.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import logging
import os
import re
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from contextstash.base.regular_files import is_below, open_regular
from contextstash.clients.client import client, clients
from contextstash.clients.projects import project_folder
from contextstash.clients.recognition import recognize
from contextstash.clients.transcripts import (
    COMPRESSED,
    Batch,
    DocumentReader,
    Line,
    Reader,
    Stamp,
    State,
    file_stamp,
    split_lines,
    unpacked,
)
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession
from contextstash_storage.errors import BadInputError, SessionDeletedError
from contextstash_storage.records import Cursor

if TYPE_CHECKING:
    from contextstash.stash import Stash

_log = logging.getLogger(__name__)

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
    end: bool = True


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
        cursor = chunk.cursor if place == len(chunk.parts) - 1 else chunk.before
        try:
            result = await stash.record_transcript(session, messages, cursor, **asked)
        except SessionDeletedError:
            report = replace(report, deleted=True)
            continue
        report = replace(
            report, recorded=report.recorded + result.recorded, duplicates=report.duplicates + result.duplicates
        )
    known = chunk.cursor.state.get("session_id")
    return replace(report, session_id=None if report.deleted else known or report.session_id)


def _read(path: Path, reader: Reader, cursor: Cursor) -> _Chunk:
    if isinstance(reader, DocumentReader) or path.suffix == COMPRESSED:
        return _read_whole(path, reader, cursor)
    size = path.stat().st_size
    with open_regular(path) as file:
        if not _continues(file.read(_HEAD), size, cursor):
            cursor = Cursor(source=cursor.source)
        lines, length, end = _new_lines(file, cursor, size)
        file.seek(0)
        head = file.read(min(_HEAD, cursor.offset + length))
    state: State = copy.deepcopy(cursor.state.get("reader", {}))
    parts = tuple(_parts(reader.read(lines, state, cursor.source)))
    kept = {"reader": state, "head": [len(head), _digest(head)], "session_id": _session_id(cursor, parts)}
    after = Cursor(source=cursor.source, offset=cursor.offset + length, state=kept)
    return _Chunk(parts, cursor, after, end)


def _read_whole(path: Path, reader: Reader, cursor: Cursor) -> _Chunk:
    """All of a transcript that is not a file of lines; nothing if it has not changed since the last reading. The
    messages of a compressed file of lines have the keys that they have in the plain one."""
    stamp, source = stamp_of(path, reader), cursor.source
    state: State = copy.deepcopy(cursor.state.get("reader", {}))
    lines: list[Line] = []
    if cursor.state.get("stamp") != stamp:
        if isinstance(reader, DocumentReader):
            lines = reader.load(path)
        else:
            lines, state, source = split_lines(unpacked(path), at_end=True)[0], {}, source.removesuffix(COMPRESSED)
    parts = tuple(_parts(reader.read(lines, state, source))) if lines else ()
    kept = {"reader": state, "stamp": stamp, "session_id": _session_id(cursor, parts)}
    return _Chunk(parts, cursor, Cursor(source=cursor.source, state=kept))


def stamp_of(path: Path, reader: Reader) -> Stamp:
    """What changes whenever a transcript changes. Raises OSError."""
    return reader.stamp(path) if isinstance(reader, DocumentReader) else file_stamp(path)


def _session_id(cursor: Cursor, parts: Sequence[Part]) -> str | None:
    known = cursor.state.get("session_id")
    return known if isinstance(known, str) else parts[0][0].session_id if parts else None


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
        run: list[TranscriptMessage] = []
        size = 0
        for message in batch.messages:
            length = len(json.dumps(message.body, ensure_ascii=False))
            if run and not batch.session.whole and (len(run) >= MAX_MESSAGES or size + length > MAX_BYTES):
                yield batch.session, run
                run, size = [], 0
            run.append(message)
            size += length
        yield batch.session, run


AUTO = "auto"


def followed() -> list[str]:
    """The names of the clients that can be followed."""
    return [each.name for each in clients() if each.files is not None]


Find = Callable[[], list[Path]]
"""The current transcript first, then those of its sub-agents; none if there is no transcript yet."""


def find_transcripts(follow: str, follow_path: Path | None = None, project: Path | None = None) -> Find:
    """A function that finds the current session's transcripts of a client, or of the one that started this process
    (`auto`): none if the client is unknown.

    `follow_path` is the transcript itself or the folder it is in; without it, the client's own folder is searched
    for the latest session in `project` (by default the one that the client started this process for).
    Raises BadInputError if there is no such client.
    """
    if follow not in (*followed(), AUTO):
        raise BadInputError(f"There is no host '{follow[:60]}' to follow. Known: {', '.join(followed())}, and {AUTO}.")
    name = starting_client(os.environ, commands_above()) if follow == AUTO else follow
    files = client(name).files if name is not None else None
    if name is None or files is None:
        _log.warning("No host that can be followed started this server; name it with --follow.")
        return list
    reported: set[Path] = set()

    def find() -> list[Path]:
        if follow_path is not None and follow_path.is_dir():
            return _within(files.current(follow_path, None), follow_path, reported)
        if follow_path is not None:
            is_there = follow_path.exists() or follow_path.parent.is_file()
            return [follow_path, *files.sub_agents(follow_path)] if is_there else []
        folder = files.folder(Path.home())
        if folder is None:
            return []
        return _within(files.current(folder, project or project_folder(os.environ, name)), folder, reported)

    return find


def _within(found: list[Path], folder: Path, reported: set[Path]) -> list[Path]:
    """Those that lie below the client's folder once links are resolved; each of the others is logged once."""
    for path in found:
        if not is_below(path, folder) and path not in reported:
            reported.add(path)
            _log.warning("A transcript is not followed: %s leads out of %s.", path.name, folder)
    return [path for path in found if path not in reported]


MAX_ANCESTORS = 12
"""How many parent processes are examined: enough for launchers (uv, npx, sh) and a terminal between."""

_DESKTOP = re.compile(r"Claude\.app/|AnthropicClaude")
"""The paths of Claude Desktop, whose program has the same name as Claude Code's."""

_RUNTIMES = re.compile(r"(?:node|nodejs|bun|deno|python[\d.]*)")
_SUFFIX = re.compile(r"(?:\.(?:exe|js|mjs|cjs|cmd))+$")


def starting_client(environment: Mapping[str, str], commands: Iterable[Sequence[str]]) -> str | None:
    """The name of the client that started this process, None if it is unknown. `commands` are those of the parent
    processes, the nearest first. Of the variables each client's first counts before all others, which what it starts
    inherits."""
    for command in commands:
        if (found := _client_of(command)) is not None:
            return found
    known = [(each.name, variable) for each in clients() for variable in each.variables[:1]]
    known += [(each.name, variable) for each in clients() for variable in each.variables[1:]]
    return next((name for name, variable in known if environment.get(variable)), None)


def _client_of(command: Sequence[str]) -> str | None:
    """The client of a command: by the name of the program, or of the script that a runtime runs, or of its package."""
    if not command or _DESKTOP.search(command[0]):
        return None
    programs = {program: each.name for each in clients() for program in each.programs}
    names = [_name(command[0])]
    if _RUNTIMES.fullmatch(names[0]):
        script = next((argument for argument in command[1:] if not argument.startswith("-")), "")
        _, installed, package = script.rpartition("node_modules")
        names = [_name(script), *(_name(each) for each in Path(package).parts[1:3] if installed)]
    return next((programs[name] for name in names if name in programs), None)


def _name(path: str) -> str:
    return _SUFFIX.sub("", Path(path).name.lower())


def commands_above() -> list[list[str]]:
    """The commands of the parent processes, the nearest first; none if the system does not show them."""
    found = []
    process = os.getppid()
    for _ in range(MAX_ANCESTORS):
        try:
            process, command = _process(process)
        except (OSError, ValueError, subprocess.SubprocessError):
            break
        found.append(command)
        if process <= 1:
            break
    return found


def _process(number: int) -> tuple[int, list[str]]:
    """The parent and the command of a process: from /proc, or from `ps` if the system has none."""
    place = Path("/proc", str(number))
    if Path("/proc/self/stat").exists():
        words = place.joinpath("cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        parent = place.joinpath("stat").read_text("utf-8", "replace").rpartition(")")[2].split()[1]
        return int(parent), [word for word in words if word]
    command = ["ps", "-o", "ppid=,command=", "-p", str(number)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2, stdin=subprocess.DEVNULL)
    parent, _, line = done.stdout.strip().partition(" ")
    return int(parent), line.split()


class Follower:
    """Records what is new in one client's transcripts, each time `catch_up` is called."""

    def __init__(self, stash: Stash, find: Find, reader: Reader | None = None) -> None:
        """`find` is called each time. `reader` reads the files that it found; by default each file's own reader."""
        self._stash = stash
        self._find = find
        self._reader = reader
        self._readers: dict[Path, Reader] = {}
        self._lock = asyncio.Lock()
        self._seen: dict[Path, Stamp] = {}
        self._sessions: dict[Path, str | None] = {}
        self._deleted: set[Path] = set()

    async def catch_up(self) -> str | None:
        """Record what is new in the current transcript and its sub-agents' files; the id of its session,
        None if there is no transcript, or no message in it. A file that did not change costs one stat."""
        async with self._lock:
            try:
                paths = await asyncio.to_thread(self._find)
            except OSError as error:
                _log.warning("The client's transcripts cannot be found: %s", error.strerror or error)
                return None
            for path in paths:
                await self._catch_up(path)
            return self._sessions.get(paths[0]) if paths else None

    async def _catch_up(self, path: Path) -> None:
        try:
            reader = self._reader or self._readers.get(path)
            if reader is None:
                reader = self._readers[path] = await asyncio.to_thread(recognize, path)
            seen = await asyncio.to_thread(stamp_of, path, reader)
            if self._seen.get(path) == seen:
                return
            report = await ingest(self._stash, path, reader=reader)
        except OSError as error:
            _log.warning("A transcript cannot be read: %s", error.strerror or error)
        except BadInputError as error:
            _log.warning("A transcript is not recorded: %s", error)
        else:
            self._seen[path] = seen
            self._sessions[path] = report.session_id
            if report.deleted and path not in self._deleted:
                _log.warning(NOT_RECORDED, path.name, path)
                self._deleted.add(path)
