"""Keeps a client's current transcript recorded, so that its model need not pass its history to tools."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash.files.regular_files import is_below
from contextstash.hosts.following.ingest import NOT_RECORDED, ingest
from contextstash.hosts.project_folder import project_folder
from contextstash.hosts.readers import claude_code, codex, gemini, opencode, pi
from contextstash.hosts.readers.documents import DocumentReader
from contextstash.hosts.readers.kinds import recognize
from contextstash_storage.errors import BadInputError

PROGRAMS = {
    "claude": "claude-code",
    "claude-code": "claude-code",
    "codex": "codex",
    "gemini": "gemini",
    "gemini-cli": "gemini",
    "opencode": "opencode",
    "pi": "pi",
    "pi-coding-agent": "pi",
}
"""Hosts by the names of their programs and packages."""

VARIABLES = (
    ("CLAUDE_PROJECT_DIR", "claude-code"),
    ("OPENCODE", "opencode"),
    ("GEMINI_CLI", "gemini"),
    ("CLAUDECODE", "claude-code"),
    ("PI_CODING_AGENT", "pi"),
)

MAX_ANCESTORS = 12
"""How many parent processes are examined: enough for launchers (uv, npx, sh) and a terminal between."""

_DESKTOP = re.compile(r"Claude\.app/|AnthropicClaude")
"""The paths of Claude Desktop, whose program has the same name as Claude Code's."""

_RUNTIMES = re.compile(r"(?:node|nodejs|bun|deno|python[\d.]*)")
_SUFFIX = re.compile(r"(?:\.(?:exe|js|mjs|cjs|cmd))+$")


def starting_host(environment: Mapping[str, str], commands: Iterable[Sequence[str]]) -> str | None:
    """The host's name, None if it is unknown. `commands` are those of the parent processes, the nearest first."""
    for command in commands:
        if (host := _host_of(command)) is not None:
            return host
    return next((host for name, host in VARIABLES if environment.get(name)), None)


def _host_of(command: Sequence[str]) -> str | None:
    """The host of a command: by the name of the program, or of the script that a runtime runs, or of its package."""
    if not command or _DESKTOP.search(command[0]):
        return None
    own = _name(command[0])
    if own in PROGRAMS or not _RUNTIMES.fullmatch(own):
        return PROGRAMS.get(own)
    script = next((argument for argument in command[1:] if not argument.startswith("-")), "")
    if (found := PROGRAMS.get(_name(script))) is not None:
        return found
    package = [_name(name) for name in Path(script.rpartition("node_modules")[2]).parts[1:3]]
    return next((PROGRAMS[name] for name in package if "node_modules" in script and name in PROGRAMS), None)


def _name(path: str) -> str:
    return _SUFFIX.sub("", Path(path).name.lower())


def commands_above() -> list[list[str]]:
    """The commands of the parent processes, the nearest first; none if the system does not show them."""
    found = []
    process = os.getppid()
    for _ in range(MAX_ANCESTORS):
        parent = _from_proc(process) if Path("/proc/self/stat").exists() else _from_ps(process)
        if parent is None:
            break
        process, command = parent
        found.append(command)
        if process <= 1:
            break
    return found


def _from_proc(process: int) -> tuple[int, list[str]] | None:
    """The parent and the command of a process, from /proc."""
    try:
        command = Path(f"/proc/{process}/cmdline").read_bytes().decode("utf-8", "replace")
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    parent = stat.rpartition(")")[2].split()[1:2]
    return int(parent[0]) if parent else 0, [word for word in command.split("\0") if word]


def _from_ps(process: int) -> tuple[int, list[str]] | None:
    try:
        done = subprocess.run(
            ["ps", "-o", "ppid=,command=", "-p", str(process)],
            capture_output=True,
            text=True,
            timeout=2,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    parent, _, command = done.stdout.strip().partition(" ")
    return (int(parent), command.split()) if parent.isdecimal() else None


if TYPE_CHECKING:
    from contextstash.hosts.readers.documents import Stamp
    from contextstash.hosts.readers.kinds import Reader
    from contextstash.service.stash import Stash

Find = Callable[[], list[Path]]
"""The current transcript first, then those of its sub-agents; none if there is no transcript yet."""

AUTO = "auto"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HostFiles:
    """The folder of a host's transcripts, given the user's home, and those that are the current ones of a project,
    or without a project of a folder."""

    folder: Callable[[Path], Path | None]
    current: Callable[[Path, Path | None], list[Path]]


FILES = {
    "claude-code": HostFiles(claude_code.projects_folder, claude_code.current_files),
    "codex": HostFiles(codex.sessions_folder, codex.current_rollouts),
    "gemini": HostFiles(gemini.home_folder, gemini.current_recordings),
    "opencode": HostFiles(opencode.data_folder, opencode.current_sessions),
    "pi": HostFiles(pi.sessions_folder, pi.current_sessions),
}

HOSTS = tuple(FILES)


def find_transcripts(follow: str, follow_path: Path | None = None, project: Path | None = None) -> Find:
    """A function that finds the current session's transcripts of a host, or of the one that started this process
    (`auto`): none if the host is unknown.

    `follow_path` is the transcript itself or the folder it is in; without it, the host's own folder is searched
    for the latest session in `project` (by default the one that the host started this process for).
    Raises BadInputError if there is no such host.
    """
    if follow not in (*HOSTS, AUTO):
        raise BadInputError(f"There is no host '{follow[:60]}' to follow. Known: {', '.join(HOSTS)}, and {AUTO}.")
    host = (starting_host(os.environ, commands_above()) if follow == AUTO else follow) or ""
    if host not in FILES:
        _log.warning("No host that can be followed started this server; name it with --follow.")
        return list
    files = FILES[host]
    reported: set[Path] = set()

    def find() -> list[Path]:
        if follow_path is not None and follow_path.is_dir():
            return _within(files.current(follow_path, None), follow_path, reported)
        if follow_path is not None:
            return _beside(host, follow_path)
        folder = files.folder(Path.home())
        if folder is None:
            return []
        return _within(files.current(folder, project or project_folder(os.environ, host)), folder, reported)

    return find


def _within(found: list[Path], folder: Path, reported: set[Path]) -> list[Path]:
    """Those that lie below the host's folder once links are resolved; each of the others is logged once."""
    for path in found:
        if not is_below(path, folder) and path not in reported:
            reported.add(path)
            _log.warning("A transcript is not followed: %s leads out of %s.", path.name, folder)
    return [path for path in found if path not in reported]


def _beside(host: str, transcript: Path) -> list[Path]:
    """A transcript that was named, with those of its sub-agents in the same folder."""
    if host == "claude-code" and transcript.exists():
        return [transcript, *claude_code.agent_transcripts(transcript)]
    return [transcript] if transcript.exists() or transcript.parent.is_file() else []


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
            reader = await asyncio.to_thread(self._reader_of, path)
            seen = await asyncio.to_thread(_stamp, path, reader)
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

    def _reader_of(self, path: Path) -> Reader:
        if self._reader is not None:
            return self._reader
        if path not in self._readers:
            self._readers[path] = recognize(path)
        return self._readers[path]


def _stamp(path: Path, reader: Reader) -> Stamp:
    if isinstance(reader, DocumentReader):
        return reader.stamp(path)
    found = path.stat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]
