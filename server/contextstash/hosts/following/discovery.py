"""Finds the transcripts in a file or folder."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from contextstash.hosts.readers.cline import HISTORY
from contextstash.hosts.readers.codex import SUFFIX as COMPRESSED
from contextstash.hosts.readers.codex import is_superseded
from contextstash.hosts.readers.opencode import DATABASES, sessions_in_database
from contextstash.hosts.readers.openhands import OpenHandsReader
from contextstash.hosts.readers.openhands_sdk import OpenHandsSdkReader

SUFFIXES = (".jsonl", ".json", ".traj", COMPRESSED)


def transcripts_in(path: Path) -> Iterator[Path]:
    """The transcripts in a folder, each once; those in a database; else the file itself, whatever it is.

    A folder that is one transcript is found as such, one of a task without the files that only belong to it. Other
    files with a transcript's suffix are found too: their content shows what they are.
    Raises OSError if a named file is a database that cannot be read.
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
        if (found := _whole(here)) is not None:
            folders.clear()
            yield from found
            continue
        databases = fnmatch.filter(files, DATABASES)
        for name in databases:
            yield from sessions_in_database(here / name)
        if databases or here.name == "opencode":  # the messages of versions before 1.2, which are moved into a database
            folders[:] = [name for name in folders if name != "storage"]
        named = (here / name for name in sorted(files) if name.endswith(SUFFIXES))
        yield from (path for path in named if not is_superseded(path))


def _whole(folder: Path) -> list[Path] | None:
    """The transcripts of a folder that belong together; None if it is an ordinary folder."""
    if any(reader.claims(folder, None) for reader in (OpenHandsSdkReader(), OpenHandsReader())):
        return [folder]
    history = [folder / name for name in HISTORY if (folder / name).is_file()]
    return history[:1] or None
