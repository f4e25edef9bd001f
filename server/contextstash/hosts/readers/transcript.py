"""Base of the transcript readers. A file of lines is read from the position where the last reading stopped; a
transcript that its host rewrites, or keeps in several files, is read whole each time it changed."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

from contextstash.context.tool_outputs.shell_envelope import REMINDER_END, REMINDER_START
from contextstash.json.json_text import LENIENT_DECODER, lenient_value
from contextstash.service.recording.transcript_records import TranscriptMessage, TranscriptSession

logger = logging.getLogger(__name__)

State = dict[str, Any]
"""A reader's state between two readings. It is stored in the database, so it holds only JSON values."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a transcript. `digest` is a short hash of the line's bytes, the same at every reading."""

    record: dict[str, Any]
    digest: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one session, in order."""

    session: TranscriptSession
    messages: list[TranscriptMessage]


class TranscriptReader(Protocol):
    """Reads one kind of transcript, a file of lines."""

    name: str

    def knows(self, lines: list[Line]) -> bool:
        """Whether a file that begins with these lines is of this kind."""
        ...

    def read(self, lines: Iterable[Line], state: State, source: str) -> list[Batch]:
        """The messages in these lines; updates `state`. Unknown records are skipped."""
        ...


def split_lines(data: bytes, *, at_end: bool) -> tuple[list[Line], int]:
    """The complete records in `data`, and how many bytes they use.

    A last line without a line end is left for the next reading, unless `at_end` is true and the line is complete.
    A damaged line is skipped with a warning; several records on one line are split.
    """
    end = data.rfind(b"\n") + 1
    lines = [line for raw in data[:end].split(b"\n") for line in _records(raw)]
    rest = data[end:]
    if at_end and rest.strip() and (last := _whole(rest)) is not None:
        lines.append(last)
        end = len(data)
    return lines, end


def first_records(data: bytes, limit: int) -> list[Line]:
    """The first complete records in `data`, at most `limit`; the rest is not parsed. A last line without a line end
    counts if it is complete."""
    raw_lines = data.split(b"\n")
    found = list(islice((line for raw in raw_lines[:-1] for line in _records(raw)), limit))
    if len(found) < limit and raw_lines[-1].strip() and (last := _whole(raw_lines[-1])) is not None:
        found.append(last)
    return found


def _whole(raw: bytes) -> Line | None:
    try:
        record = lenient_value(raw)
    except (ValueError, RecursionError):
        return None
    return Line(record, digest_of(raw)) if isinstance(record, dict) else None


def _records(raw: bytes) -> Iterator[Line]:
    text = raw.decode("utf-8", "replace").strip().strip("\ufeff\0").strip()
    place = 0
    while place < len(text):
        try:
            record, end = LENIENT_DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            again = _resume(text, place)
            logger.warning("skipped a damaged record of %d characters", len(text) - place)
            if again is None:
                return
            place = again
            continue
        if isinstance(record, dict):
            yield Line(record, digest_of(text[place:end].encode("utf-8", "surrogatepass")))
        place = end
        while place < len(text) and text[place].isspace():
            place += 1


_BEGINNING = re.compile(r'\{"(?:timestamp|parentUuid|type)":')
"""How the records of all hosts that write JSON lines begin. It is used to find the next record after a damaged one."""


def _resume(text: str, place: int) -> int | None:
    """The start of the next record on the same line, after one that was cut off; None if there is none."""
    found = _BEGINNING.search(text, place + 1)
    return found.start() if found else None


def digest_of(raw: bytes) -> str:
    """A short hash of these bytes."""
    return hashlib.sha256(raw.strip()).hexdigest()[:20]


def moment(value: object) -> datetime | None:
    """The time of an ISO 8601 string with a zone; None if the value is not one."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
    except ValueError:
        return None
    return found if found.tzinfo else None


def moment_of_ms(value: object) -> datetime | None:
    """The time of a number of milliseconds since 1970; None if the value is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e14:
        return None
    return datetime.fromtimestamp(value / 1000, UTC)


def text_of(value: object) -> str | None:
    """The value if it is a string that is not blank, else None."""
    return value if isinstance(value, str) and value.strip() else None


def newest_first(files: Iterable[Path], folder: Path) -> list[Path]:
    """The files in this folder, the one written last first. Links to files outside the folder and files that were
    deleted meanwhile are left out."""
    known = [(written, file) for file in files if (written := _written(file, folder)) is not None]
    return [file for _, file in sorted(known, key=lambda found: found[0], reverse=True)]


def paths_of(project: Path) -> list[str]:
    """The paths by which a client may name a project's folder."""
    return list(dict.fromkeys((str(project.absolute()), str(project.resolve()))))


def is_at(directory: object, project: Path) -> bool:
    """Whether a directory that a client recorded is this project's folder."""
    return isinstance(directory, str) and str(Path(directory)) in paths_of(project)


def is_within(file: Path, folder: Path) -> bool:
    """Whether this is a file in the folder or below it, after links are followed."""
    return _written(file, folder) is not None


def _written(file: Path, folder: Path) -> int | None:
    try:
        if not file.is_file() or not file.resolve().is_relative_to(folder.resolve()):
            return None
        return file.stat().st_mtime_ns
    except (OSError, RuntimeError):
        return None


_TAG = re.compile(r"<(?=/?system-reminder)", re.IGNORECASE)


def reminder(text: str) -> str:
    """The text between the tags of a reminder, with such tags in the text escaped, so that the text cannot close it."""
    return f"{REMINDER_START}\n{_TAG.sub('‹', text)}\n{REMINDER_END}"
