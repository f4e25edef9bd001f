"""The transcripts of `contextstash import`: what each is, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from contextstash_storage.errors import BadInputError, ContextstashError

if TYPE_CHECKING:
    from contextstash.stash import Stash

Advance = Callable[[str, int], None]
"""Called with the name of a transcript and how many more bytes of it were read."""

EXPORT_PREFIX = b'{"contextstash_session":'

NO_TRANSCRIPT = "no transcript"
EXPORT = "an exported session"
DELETED = "a session that was deleted here"
SAMPLE = "the sample session of contextstash demo"


@dataclass(frozen=True)
class Imported:
    """The result for one transcript.

    `known` is how many messages its session had before this command, `duplicates` how many of them were read again: a
    file that has not changed is not read.
    """

    file: str
    session_id: str | None = None
    recorded: int = 0
    known: int = 0
    duplicates: int = 0
    error: str | None = None


@dataclass(frozen=True)
class Found:
    """A transcript to import. `named`: the user named the file itself, not a folder that contains it."""

    path: Path
    named: bool
    size: int


@dataclass(frozen=True)
class Skipped:
    """A file in a folder that was not imported, and what it is instead of a transcript."""

    path: Path
    what: str


Result = Imported | Skipped


async def import_one(stash: Stash, item: Found, session: str | None, advance: Advance) -> Result:
    """Skipped is only what was found in a folder: a file that the user named is imported, or the result is an error."""
    from contextstash.clients.follow import ingest
    from contextstash.clients.recognition import recognize

    done = 0

    def read(place: int) -> None:
        nonlocal done
        advance(item.path.name, max(0, min(place, item.size) - done))
        done = max(done, min(place, item.size))

    try:
        if not item.named and (what := _copy_or_sample(item)) is not None:
            return Skipped(item.path, what)
        if is_export(item.path):
            return await _import_session(stash, item, session)
        reader = recognize(item.path)
    except BadInputError as error:
        read(item.size)
        return Imported(str(item.path), error=str(error)) if item.named else Skipped(item.path, NO_TRANSCRIPT)
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    try:
        report = await ingest(stash, item.path, reader=reader, on_progress=read, reduce=False, wanted=item.named)
    except ContextstashError as error:
        return Imported(str(item.path), error=str(error))
    except OSError as error:
        return Imported(str(item.path), error=f"cannot be read: {error.strerror or error}")
    finally:
        read(item.size)
    if report.deleted:
        return Skipped(item.path, DELETED)
    return Imported(str(item.path), report.session_id, report.recorded, duplicates=report.duplicates)


def is_export(path: Path) -> bool:
    """Whether a file is an exported session, by its first line. Raises OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(EXPORT_PREFIX)) == EXPORT_PREFIX


async def _import_session(stash: Stash, item: Found, session: str | None) -> Imported:
    with item.path.open(encoding="utf-8") as lines:
        try:
            result = await stash.import_session(lines, session_id=session)
        except UnicodeDecodeError as error:
            raise BadInputError("The file is not UTF-8 text.") from error
    return Imported(str(item.path), result.session_id, result.recorded, duplicates=result.duplicates)


def _copy_or_sample(item: Found) -> str | None:
    """The reason to skip a file that could be imported, but is not a session of the user's own clients; None to
    import."""
    from contextstash.demo.sample import sample_file

    if is_export(item.path):
        return EXPORT
    sample = sample_file()
    is_sample = item.path.name == sample.name and item.path.is_file() and item.path.read_bytes() == sample.read_bytes()
    return SAMPLE if is_sample else None
