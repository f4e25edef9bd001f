"""Which of a client's sessions is the current one: by their folder, by their times, or not told."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from stat import S_ISREG

from contextstash.base.files import open_regular
from contextstash.clients.fields import moment

NOT_TOLD = (
    "Which session? Several may be meant, and the client does not tell which one this call comes from."
    " Pass session_id: the resource context://sessions lists them."
)


MAX_FILES = 300
"""How many files of a client are looked at, the latest ones; a session in an older one is not followed."""


def newest_first(files: Iterable[Path], folder: Path) -> list[Path]:
    """The latest files in this folder, the one written last first. Links to files outside the folder and files that
    were deleted meanwhile are left out."""
    written: list[tuple[int, Path]] = []
    for file in files:
        with suppress(OSError):
            if S_ISREG((found := file.stat()).st_mode):
                written.append((found.st_mtime_ns, file))
    root = folder.resolve()
    latest = sorted(written, key=itemgetter(0), reverse=True)[:MAX_FILES]
    return [file for _, file in latest if file.resolve().is_relative_to(root)]


RECENT_SECONDS = 600
"""A guess: what was said so close together may have been said in two windows."""


def since(began: float, ended: float) -> float:
    """When another session must have ended for the newest one, with these times, to be surely the window's: before it
    began, as the one that it followed in its window, or long ago. All in seconds since 1970."""
    return max(began, ended - RECENT_SECONDS)


def recent(files: Sequence[Path]) -> list[Path]:
    """The first of these transcripts, the newest, and those that others may be writing at the same time."""
    if len(files) < 2:
        return list(files)
    quiet = since(*_span(files[0]))
    return [files[0], *(each for each in files[1:] if each.stat().st_mtime > quiet and _span(each)[1] > quiet)]


_TIME = re.compile(rb'"(?:timestamp|startTime)"\s*:\s*"([^"]{10,40})"')
_END_BYTES = 200_000


def _span(path: Path) -> tuple[float, float]:
    """The first and the last time in a transcript; a client may add a title to an older one. Without any, the file's
    own."""
    with open_regular(path) as file:
        ends = file.read(_END_BYTES)
        written = path.stat()
        file.seek(max(len(ends), written.st_size - _END_BYTES))
        ends += file.read()
    times = [at.timestamp() for each in _TIME.findall(ends) if (at := moment(each.decode("latin-1")))]
    return (times[0], times[-1]) if times else (written.st_mtime, written.st_mtime)


def paths_of(project: Path) -> list[str]:
    """The paths by which a client may name a project's folder."""
    return list(dict.fromkeys((str(project.absolute()), str(project.resolve()))))


def is_at(directory: object, project: Path) -> bool:
    """Whether a directory that a client recorded is this project's folder."""
    return isinstance(directory, str) and str(Path(directory)) in paths_of(project)
