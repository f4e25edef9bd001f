"""Transcripts as messages: how a kind of transcript is read, and what is new since it was read last.

    lines, length = split_lines(path.read_bytes(), at_end=True)
    batch = reader.read(lines, state, str(path))

A file of lines is read from the position where the last reading stopped; a transcript that its client rewrites, or
keeps in a database, is read whole each time it changed. What a record says is in the file of its client.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession

if TYPE_CHECKING:
    from contextstash_storage.records import Usage

_log = logging.getLogger(__name__)

Json = dict[str, Any]

State = dict[str, Any]
"""What a reader needs from one reading to the next. It is stored in the database, so it holds only JSON values. What is
known of the session stands in it as `session` (its id), `parent`, `title`, `model` and `window`."""

Stamp = list[int]
"""Sizes and times that change whenever the transcript on disk changes."""

MAX_BRANCH = 300
"""How many messages of a branch are remembered, and how many records that are not messages. It bounds the state too."""


@dataclass(frozen=True, slots=True)
class Line:
    """One record of a transcript. `digest` is a short hash of the line's bytes, the same at every reading; empty if the
    transcript is read whole."""

    record: Json
    digest: str


@dataclass(frozen=True, slots=True)
class Reported:
    """The usage of the reply with this key, written after it."""

    key: str
    usage: Usage


class Batch(NamedTuple):
    """Messages of one session, in order."""

    session: TranscriptSession
    messages: list[TranscriptMessage]


def file_stamp(path: Path) -> Stamp:
    """When a file changed last, and how large it is. Raises OSError."""
    found = path.stat()
    return [found.st_ino, found.st_mtime_ns, found.st_size]


@dataclass(frozen=True)
class Reader:
    """One kind of transcript. `name` is its client's; `claims` returns whether the transcript at a path, by its first
    records, is of this kind: if it is no file of lines, that is one object, with a list that it is as `messages`.
    `said` returns what records say, in order, given the state and the path; unknown records are skipped.

    `load`, for a transcript that is read whole each time it changed, returns all its records, and `stamp` changes
    whenever it does; both raise OSError. `format` is that of the messages; None if it stands in the state, and if the
    messages are the whole conversation, without keys.
    """

    name: str
    format: str | None
    claims: Callable[[Path, Sequence[Json]], bool]
    said: Callable[[Iterable[Line], State, str], Iterable[TranscriptMessage | Reported]]
    load: Callable[[Path], Iterable[Json]] | None = None
    stamp: Callable[[Path], Stamp] = file_stamp

    def lines(self, path: Path) -> list[Line]:
        """All records of a transcript that is read whole. Raises OSError."""
        return [Line(record, "") for record in self.load(path)] if self.load else []

    def read(self, lines: Iterable[Line], state: State, source: str) -> Batch | None:
        """The messages in these lines, or those that are new if the transcript is read whole, with its session; None if
        there are none. Updates `state`."""
        messages: list[TranscriptMessage] = []
        places: dict[str | None, int] = {}
        late = None
        for each in self.said(lines, state, source):
            if isinstance(each, TranscriptMessage):
                places[each.key] = len(messages)
                messages.append(each)
            elif (place := places.get(each.key)) is not None:
                messages[place] = replace(messages[place], usage=each.usage)
            else:
                late = (each.key, each.usage)
        if self.format and self.load:
            messages = unseen(messages, state)
        if not messages and late is None:
            return None
        session = TranscriptSession(
            session_id=str(state.get("session") or Path(source).stem),
            format=self.format or state["format"],
            agent=self.name if self.format else state.get("agent"),
            model=state.get("model"),
            title=state.get("title"),
            source=source if self.format else None,
            parent_session_id=state.get("parent"),
            window=state.get("window"),
            late_usage=late,
            whole=self.format is None,
        )
        return Batch(session, results_behind_calls(messages))


def results_behind_calls(messages: Sequence[TranscriptMessage]) -> list[TranscriptMessage]:
    """The messages in order, a result that was written before its call behind it. Anthropic's form."""
    called = {call: at for at, message in enumerate(messages) for call in ids_of(message.body, "tool_use", "id")}
    order = []
    for at, message in enumerate(messages):
        answered = [called.get(call, at) for call in ids_of(message.body, "tool_result", "tool_use_id")]
        behind = max(answered, default=at)
        order.append((max(behind, at), behind > at, at))
    return [messages[at] for *_, at in sorted(order)]


def split_lines(data: bytes, *, at_end: bool) -> tuple[list[Line], int]:
    """The complete records in `data`, and how many bytes they use.

    A last line without a line end is left for the next reading, unless `at_end` is true and the line is complete.
    A damaged line is skipped with a warning; several records on one line are split.
    """
    end = data.rfind(b"\n") + 1
    lines = [line for raw in data[:end].split(b"\n") for line in _records(raw)]
    rest = data[end:]
    if at_end and rest.strip() and isinstance(record := parse_document(rest), dict):
        lines.append(Line(record, digest_of(rest)))
        end = len(data)
    return lines, end


_BEGINNING = re.compile(r'\{"(?:timestamp|parentUuid|type)":')
"""How the records of all clients that write JSON lines begin. It finds the next record after a damaged one."""

_DECODER = json.JSONDecoder()


def _records(raw: bytes) -> Iterator[Line]:
    text = raw.decode("utf-8", "replace").strip().strip("\ufeff\0").strip()
    place = 0
    while place < len(text):
        try:
            record, end = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            _log.warning("skipped a damaged record of %d characters", len(text) - place)
            again = _BEGINNING.search(text, place + 1)
            if again is None:
                return
            place = again.start()
            continue
        if isinstance(record, dict):
            yield Line(record, digest_of(text[place:end].encode("utf-8", "surrogatepass")))
        place = end
        while place < len(text) and text[place].isspace():
            place += 1


def parse_document(data: bytes) -> Any:
    """The JSON value of these bytes; None if they are not valid JSON."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def unseen(messages: Sequence[TranscriptMessage], state: State) -> list[TranscriptMessage]:
    """Returns the messages that `state` does not contain yet, and adds them to `state`.

    If other messages replaced known ones, the first new message names the message that the conversation was rewound
    to. If some of the replaced messages still exist at another position, there was no rewind.
    """
    # 8 digits of a hash: of 1,000 that took the place of 1,000 others, one is taken for one of these in 4,000 such
    # transcripts, and then the rewind is not seen.
    keys = [(message.key or "").encode("utf-8", "surrogatepass") for message in messages]
    listed = [hashlib.sha256(key).hexdigest()[:8] for key in keys]
    before = str(state.get("known", "")).split()
    known = next((n for n, (was, now) in enumerate(zip(before, listed, strict=False)) if was != now), len(before))
    fresh, gone = list(messages[known:]), set(before[known:])
    if fresh and gone and gone.isdisjoint(listed[known:]) and fresh[0].rewind_to_key is None:
        fresh[0] = replace(fresh[0], rewind_to_key=messages[known - 1].key if known else "")
    if fresh:
        state["known"] = " ".join(listed)
    return fresh


def digest_of(raw: bytes) -> str:
    """A short hash of these bytes."""
    return hashlib.sha256(raw.strip()).hexdigest()[:20]


BEGINNING = ""
"""The target of a rewind to before the first message."""

RESULT, WORDS, TURN_END = range(3)
"""What a message is in a branch: results of tools alone, a person's or the model's words, or what a prompt follows."""


class Branch:
    """The newest messages of a conversation whose records name their parents, kept in a reader's state.

    `path` maps the keys of its messages, in order, to what they are; `above` maps a record that is not a message to the
    message that it descends from. Both are limited, because they are stored; a turn may be long, so the ends of turns
    stay longest: that is where conversations are rewound to. Of a chain of records only the last one is remembered.
    """

    def __init__(self, state: State) -> None:
        self.path: dict[str, int] = state.setdefault("path", {BEGINNING: TURN_END})
        self._above: dict[str, str] = state.setdefault("above", {})

    def add(self, record: str, key: str, parent: str | None, *, words: bool = True) -> None:
        """Note a message, by its own record and its parent's."""
        if list(self.path) == [BEGINNING]:
            self._note(parent or "", BEGINNING)
        self.path.setdefault(key, WORDS if words else RESULT)
        if len(self.path) > MAX_BRANCH:
            del self.path[min([*self.path][:-1], key=lambda each: self.path[each] == TURN_END)]
        if record != key:
            self._note(record, key)

    def passed(self, record: str | None, parent: str | None) -> None:
        """Note a record that is not a message: its children descend from what it descends from."""
        if record and (message := self.message(parent)) is not None:
            if parent:
                self._above.pop(parent, None)
            self._note(record, message)

    def message(self, record: str | None) -> str | None:
        """The key of this record's message, or of the one that it descends from; None if it is not remembered."""
        return record if record and record in self.path else self._above.get(record or "")

    def first_from(self, record: str | None) -> str | None:
        """The key of this record's message, or else of the first message after the record."""
        keys = list(self.path)
        above = self._above.get(record or "")
        if record in keys or above not in keys:
            return record
        return next(iter(keys[keys.index(above) + 1 :]), None)

    def rewound_to(self, parent: str | None) -> str | None:
        """The message that one with this parent rewinds the conversation to; None if it continues it, also if only
        results of tools were left: those of parallel calls have other parents."""
        target = self.message(parent)
        if target not in self.path:
            return None
        self.path[target] = TURN_END
        keys = list(self.path)
        left = keys[keys.index(target) + 1 :]
        if not any(self.path[key] for key in left):
            return None
        for key in left:
            del self.path[key]
        return target

    def clear(self) -> None:
        """Forget all: a conversation cannot be rewound to a message before its summary."""
        self.path.clear()
        self._above.clear()

    def _note(self, record: str, key: str) -> None:
        self._above.pop(record, None)
        self._above[record] = key
        while len(self._above) > MAX_BRANCH:
            del self._above[next(iter(self._above))]


def ids_of(body: Json, kind: str, name: str) -> list[str]:
    """The ids in the field `name` of a message's blocks of this kind."""
    found = [block.get(name) for block in objects(body.get("content")) if block.get("type") == kind]
    return [each for each in found if isinstance(each, str)]


def objects(value: object) -> list[Json]:
    """The objects in a list; none if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(record: object, *names: str) -> Json:
    """The object found under these names, each inside the previous one; empty if it does not exist."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def text_of(value: object) -> str | None:
    """The value if it is a string that is not blank, else None."""
    return value if isinstance(value, str) and value.strip() else None


def title_of(value: object) -> str | None:
    """The beginning of a title, None if there is none."""
    return (text_of(value) or "").strip()[:200] or None


def moment(value: object) -> datetime | None:
    """The time of an ISO 8601 string with a zone, or of a number of milliseconds since 1970; None if it is neither."""
    try:
        if isinstance(value, str):
            found = datetime.fromisoformat(value)
            return found if found.tzinfo else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e14:
            return datetime.fromtimestamp(value / 1000, UTC)
    except ValueError:
        pass
    return None


def count_of(record: Json, *names: str) -> int:
    """The first of these fields that holds a positive number; 0 if none does."""
    for name in names:
        value = record.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def usage_of(prompt: int, completion: int, cached: int = 0, written: int = 0) -> Usage | None:
    """The usage of a request; None if no prompt is reported. `prompt` includes cached tokens."""
    from contextstash_storage.records import Usage  # loads pydantic, which most hooks need not

    if not prompt:
        return None
    return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, cache_write_tokens=written)


def reported_usage(given: object) -> Usage | None:
    """The usage of a request as its provider reported it, None if it is not one."""
    from contextstash.messages.base import read_usage

    return read_usage(given) if isinstance(given, dict) else None


_TAG = re.compile(r"<(?=/?system-reminder)", re.IGNORECASE)


def reminder(text: str) -> str:
    """The text between the tags of a reminder, with such tags in the text escaped, so that the text cannot close it."""
    return f"<system-reminder>\n{_TAG.sub('‹', text)}\n</system-reminder>"


def newest_first(files: Iterable[Path], folder: Path) -> list[Path]:
    """The files in this folder, the one written last first. Links to files outside the folder and files that were
    deleted meanwhile are left out."""
    written: dict[Path, int] = {}
    for file in files:
        with suppress(OSError, RuntimeError):
            if file.is_file() and file.resolve().is_relative_to(folder.resolve()):
                written[file] = file.stat().st_mtime_ns
    return sorted(written, key=lambda file: written[file], reverse=True)


def paths_of(project: Path) -> list[str]:
    """The paths by which a client may name a project's folder."""
    return list(dict.fromkeys((str(project.absolute()), str(project.resolve()))))


def is_at(directory: object, project: Path) -> bool:
    """Whether a directory that a client recorded is this project's folder."""
    return isinstance(directory, str) and str(Path(directory)) in paths_of(project)
