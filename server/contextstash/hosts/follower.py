"""Following: a client's current transcript is kept recorded, so that its model need not tell what happened."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash.hosts.claude_code import (
    ClaudeCodeReader,
    agent_transcripts,
    current_transcript,
    newest_transcript,
    projects_folder,
)
from contextstash.hosts.ingest import ingest
from contextstash_storage.errors import BadInputError

if TYPE_CHECKING:
    from contextstash.hosts.transcript import TranscriptReader
    from contextstash.service.stash import Stash

Find = Callable[[], list[Path]]
"""The current transcript's file first, then those of its sub-agents; none where there is no transcript yet."""

HOSTS = ("claude-code",)

_log = logging.getLogger(__name__)


def find_transcripts(follow: str, follow_path: Path | None = None, project: Path | None = None) -> Find:
    """A function that finds the files of the host's current session.

    `follow_path` is the transcript itself or the folder it is in; without it, the host's own folder is searched
    for the latest session in `project` (by default the one that the host started this process for).
    Raises BadInputError where there is no such host.
    """
    if follow not in HOSTS:
        raise BadInputError(f"There is no host '{follow[:60]}' to follow. Known: {', '.join(HOSTS)}.")

    def current() -> Path | None:
        if follow_path is not None and not follow_path.is_dir():
            return follow_path if follow_path.exists() else None
        if follow_path is not None:
            return newest_transcript(follow_path)
        return current_transcript(project or _own_project(), projects_folder(Path.home()))

    def find() -> list[Path]:
        found = current()
        if found is None:
            return []
        return [found, *agent_transcripts(found)]

    return find


def _own_project() -> Path:
    """The folder that the client started this server for, else the working directory."""
    return Path(os.environ.get("CLAUDE_PROJECT_DIR") or Path.cwd())


class Follower:
    """Keeps one client's transcripts recorded, each time it is asked."""

    def __init__(self, stash: Stash, find: Find, reader: TranscriptReader | None = None) -> None:
        """`find` is asked each time; `reader` reads what it found, Claude Code's where none is given."""
        self._stash = stash
        self._find = find
        self._reader = reader or ClaudeCodeReader()
        self._lock = asyncio.Lock()
        self._seen: dict[Path, tuple[int, int, int]] = {}
        self._sessions: dict[Path, str | None] = {}

    async def catch_up(self) -> str | None:
        """Record what is new in the current transcript and its sub-agents' files; the id of its session,
        None where there is no transcript, or nothing has been said in it. A file that did not change costs one stat."""
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
            seen = await asyncio.to_thread(_signature, path)
            if self._seen.get(path) == seen:
                return
            report = await ingest(self._stash, path, reader=self._reader)
        except OSError as error:
            _log.warning("A transcript cannot be read: %s", error.strerror or error)
        except BadInputError as error:
            _log.warning("A transcript is not recorded: %s", error)
        else:
            self._seen[path] = seen
            self._sessions[path] = report.session_id


def _signature(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns
