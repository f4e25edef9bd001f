"""Finds the transcripts in a file or folder."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from pathlib import Path

from contextstash.hosts.readers.codex import SUFFIX as COMPRESSED
from contextstash.hosts.readers.codex import is_superseded
from contextstash.hosts.readers.opencode import DATABASES, sessions_in_database

SUFFIXES = (".jsonl", ".json", COMPRESSED)


def transcripts_in(path: Path) -> Iterator[Path]:
    """The transcripts in a folder, each once; those in a database; else the file itself, whatever it is.

    Every file with a transcript's suffix is found: its content shows what it is.
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
        databases = fnmatch.filter(files, DATABASES)
        for name in databases:
            yield from sessions_in_database(here / name)
        if databases or here.name == "opencode":  # the messages of versions before 1.2, which are moved into a database
            folders[:] = [name for name in folders if name != "storage"]
        named = (here / name for name in sorted(files) if name.endswith(SUFFIXES))
        yield from (path for path in named if not is_superseded(path))
