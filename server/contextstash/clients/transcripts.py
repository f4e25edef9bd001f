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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from contextstash.clients.fields import Json, ids_of, parse_document
from contextstash.record.transcript_records import TranscriptMessage, TranscriptSession

if TYPE_CHECKING:
    from contextstash_storage.records import Usage

_log = logging.getLogger(__name__)

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
            place = again.start() if again else len(text)
            continue
        if isinstance(record, dict):
            yield Line(record, digest_of(text[place:end].encode("utf-8", "surrogatepass")))
        place = len(text) - len(text[end:].lstrip())


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
    """The newest records of a conversation that name their parents, kept in a reader's state: what each message is, in
    order, and the message from which each other record descends.

    It is limited, because it is stored. A turn may be long, so the ends of turns stay longest: that is where
    conversations are rewound to. Of a chain of records that are no messages only the last one is remembered.
    """

    def __init__(self, state: State) -> None:
        self._path: dict[str, int] = state.setdefault("path", {BEGINNING: TURN_END})
        self._above: dict[str, str] = state.setdefault("above", {})

    def add(self, record: str, key: str, parent: str | None, *, words: bool = True) -> None:
        """Note a message, by its own record and its parent's."""
        if list(self._path) == [BEGINNING]:
            self._note(parent or "", BEGINNING)
        self._path.setdefault(key, WORDS if words else RESULT)
        if len(self._path) > MAX_BRANCH:
            del self._path[min([*self._path][:-1], key=lambda each: self._path[each] == TURN_END)]
        if record != key:
            self._note(record, key)

    def passed(self, record: str | None, parent: str | None) -> None:
        """Note a record that is not a message: its children descend from what it descends from."""
        if record and (message := self._message(parent)) is not None:
            self._above.pop(parent or "", None)
            self._note(record, message)

    def first_from(self, record: str | None) -> str | None:
        """The key of this record's message, or else of the first message after the record."""
        above = self._above.get(record or "")
        later = self._after(above) if above in self._path and record not in self._path else [record]
        return next(iter(later), None)

    def rewound_to(self, parent: str | None) -> str | None:
        """The message that one with this parent rewinds the conversation to; None if it continues it, also if only
        results of tools were left: those of parallel calls have other parents."""
        target = self._message(parent)
        if target not in self._path:
            return None
        self._path[target] = TURN_END
        left = self._after(target)
        if not any(self._path[key] for key in left):
            return None
        for key in left:
            del self._path[key]
        return target

    def clear(self) -> None:
        """Forget all: a conversation cannot be rewound to a message before its summary."""
        self._path.clear()
        self._above.clear()

    def _message(self, record: str | None) -> str | None:
        return record if record and record in self._path else self._above.get(record or "")

    def _after(self, key: str) -> list[str]:
        keys = list(self._path)
        return keys[keys.index(key) + 1 :]

    def _note(self, record: str, key: str) -> None:
        self._above.pop(record, None)
        self._above[record] = key
        if len(self._above) > MAX_BRANCH:
            del self._above[next(iter(self._above))]
