"""A host's own files: regular ones below the folders where it keeps them.

Paths come from outside: from an event of a hook, or out of a tool's response. What they name is resolved first, so that
neither `..` nor a link leads out of the host's folders.
"""

from __future__ import annotations

import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from contextstash.hosts.readers import claude_code, codex, gemini
from contextstash.hosts.regular_files import is_below, resolved
from contextstash_storage.errors import BadInputError

FOLDERS: Mapping[str, Callable[[Path], Sequence[Path]]] = {
    "claude-code": lambda home: [claude_code.projects_folder(home)],
    "codex": lambda home: [codex.sessions_folder(home), codex.sessions_folder(home).with_name("archived_sessions")],
    "gemini": lambda home: [gemini.home_folder(home) / "tmp"],
}
"""Where a host with hooks keeps its transcripts and the outputs that it puts into files."""


def own_folders(host: str) -> list[Path]:
    """The folders of a host, in the home of this user and as its environment has it."""
    return [folder.expanduser() for folder in FOLDERS[host](Path.home())]


def own_file(named: str, host: str) -> Path | None:
    """The file that a host names, resolved; None if it is not there (a new session has no transcript yet). Raises
    BadInputError if it is not a regular file below the host's own folders."""
    path = resolved(Path(named).expanduser())
    folders = own_folders(host)
    if not any(is_below(path, folder) for folder in folders):
        kept = " or ".join(map(str, folders))
        raise BadInputError(f"Not read: {str(path)[:200]} is outside of {kept}, where {host} keeps its files.")
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        raise BadInputError(f"Not read: {str(path)[:200]} is not a regular file.")
    return path
