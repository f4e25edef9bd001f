"""Which of the messages somebody records are there already: the same messages recorded twice are stored once.

Pure: the store answers the questions about its history through `History`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from contextstash_storage.records import NewMessage

RANDOM_ID = 12
"""A call id at least this long is taken for random, so that the same one means the same call."""

NO_INTERJECTION = 80
"""An opening message at least this long, in characters, is not said again by chance."""


class History(Protocol):
    """What has been stored of a session; fingerprints by position."""

    @property
    def length(self) -> int: ...

    @property
    def replay(self) -> int | None:
        """Where somebody who sends the session again from its start has got to."""
        ...

    def fingerprints(self, first: int, count: int) -> Sequence[bytes]: ...

    def places(self, fingerprint: bytes) -> Sequence[int]:
        """Positions of this fingerprint, newest first."""
        ...

    def is_unanswered(self, call_id: str, after: int) -> bool:
        """Whether a tool call of this id stands after that position, and no result after the call."""
        ...


@dataclass(frozen=True, slots=True)
class Alignment:
    """The first `duplicates` messages of the batch are there already; `replay` is the new replay position."""

    duplicates: int
    replay: int | None = None


def align(history: History, marks: Sequence[bytes], batch: Sequence[NewMessage]) -> Alignment:
    """How much of an unkeyed batch is there already. `marks` are its fingerprints.

    A batch may be the whole list again, grown (its head is the history's head); a retry or an overlapping
    window (its head is the history's tail); an older batch again (it lies inside the history and holds a call id
    that can't be a coincidence); or the next piece of a session sent again from its start, piece by piece.
    Plain words said again later are new: "continue" is not a duplicate of "continue".
    """
    if not marks or not history.places(marks[0]):
        return Alignment(0)
    replayed = _replayed(history, marks)
    if replayed is not None:
        return replayed
    head, tail = _head(history, marks, batch), _overlap(history, marks)
    if head == len(marks) > tail:
        return Alignment(head, replay=head)
    return Alignment(max(head, tail) or _contained(history, marks, batch))


def _replayed(history: History, marks: Sequence[bytes]) -> Alignment | None:
    """The next piece of a session that is sent again piece by piece."""
    at = history.replay
    if at is None or at >= history.length:
        return None
    same = _common(history.fingerprints(at, len(marks)), marks)
    if not same:
        return None
    goes_on = same == len(marks) and at + same < history.length
    return Alignment(same, at + same if goes_on else None)


def _head(history: History, marks: Sequence[bytes], batch: Sequence[NewMessage]) -> int:
    """How long the batch goes as the session did from its start."""
    same = _common(history.fingerprints(0, len(marks)), marks)
    by_chance = same == 1 and len(marks) > 1 and history.length > 1 and not _is_no_interjection(batch[0])
    return 0 if by_chance else same


def _common(stored: Sequence[bytes], marks: Sequence[bytes]) -> int:
    count = 0
    for known, mark in zip(stored, marks, strict=False):
        if known != mark:
            break
        count += 1
    return count


def _overlap(history: History, marks: Sequence[bytes]) -> int:
    """The longest head of the batch that is the history's tail, in time linear in the batch."""
    most = min(len(marks), history.length)
    borders = _borders(marks)
    held = 0
    for known in history.fingerprints(history.length - most, most):
        while held and marks[held] != known:
            held = borders[held - 1]
        if marks[held] == known:
            held += 1
    return held


def _borders(marks: Sequence[bytes]) -> list[int]:
    """For each head of the batch, how long its longest proper head is that is also its tail (Knuth, Morris, Pratt)."""
    borders = [0] * len(marks)
    held = 0
    for place in range(1, len(marks)):
        while held and marks[held] != marks[place]:
            held = borders[held - 1]
        if marks[held] == marks[place]:
            held += 1
        borders[place] = held
    return borders


def _contained(history: History, marks: Sequence[bytes], batch: Sequence[NewMessage]) -> int:
    """The batch's length where it lies whole inside the history and can't do so by chance, else 0."""
    first = next((place for place, message in enumerate(batch) if _is_distinctive(message)), None)
    if first is None:
        return 0
    for place in history.places(marks[first]):
        start = place - first
        if start >= 0 and _common(history.fingerprints(start, len(marks)), marks) == len(marks):
            return 0 if _answers_a_later_call(history, batch, start + len(marks) - 1) else len(marks)
    return 0


def _answers_a_later_call(history: History, batch: Sequence[NewMessage], after: int) -> bool:
    return any(
        block.type == "tool_result" and block.call_id is not None and history.is_unanswered(block.call_id, after)
        for message in batch
        for block in message.blocks
    )


def _is_distinctive(message: NewMessage) -> bool:
    if message.group and len(message.group) >= RANDOM_ID:
        return True
    return any(block.call_id and len(block.call_id) >= RANDOM_ID for block in message.blocks)


def _is_no_interjection(message: NewMessage) -> bool:
    return (
        message.role == "system"
        or _is_distinctive(message)
        or sum(block.size for block in message.blocks) >= NO_INTERJECTION
    )
