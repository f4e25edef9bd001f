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
    if not history.length or not marks:
        return Alignment(0)
    replayed = _replay(history, marks)
    if replayed is not None:
        return replayed
    same = _common(history.fingerprints(0, len(marks)), marks)
    if same and (same > 1 or same == min(len(marks), history.length)):
        return Alignment(same, same if same == len(marks) and same < history.length else None)
    overlap = _overlap(history, marks)
    if overlap:
        return Alignment(overlap)
    if _contained(history, marks, batch):
        return Alignment(len(marks))
    return Alignment(0)


def _replay(history: History, marks: Sequence[bytes]) -> Alignment | None:
    at = history.replay
    if at is None or at >= history.length:
        return None
    same = _common(history.fingerprints(at, len(marks)), marks)
    if not same or (same < len(marks) and at + same < history.length):
        return None
    end = at + same
    return Alignment(same, end if end < history.length else None)


def _common(stored: Sequence[bytes], marks: Sequence[bytes]) -> int:
    count = 0
    for known, mark in zip(stored, marks, strict=False):
        if known != mark:
            break
        count += 1
    return count


def _overlap(history: History, marks: Sequence[bytes]) -> int:
    """The longest head of the batch that is the history's tail."""
    most = min(len(marks), history.length)
    tail = list(history.fingerprints(history.length - most, most))
    for count in range(most, 0, -1):
        if tail[most - count :] == list(marks[:count]):
            return count
    return 0


def _contained(history: History, marks: Sequence[bytes], batch: Sequence[NewMessage]) -> bool:
    distinctive = [place for place, message in enumerate(batch) if _is_distinctive(message)]
    if not distinctive:
        return False
    first = distinctive[0]
    for place in history.places(marks[first])[:8]:
        start = place - first
        if start >= 0 and list(history.fingerprints(start, len(marks))) == list(marks):
            return True
    return False


def _is_distinctive(message: NewMessage) -> bool:
    if message.group and len(message.group) >= RANDOM_ID:
        return True
    return any(block.call_id and len(block.call_id) >= RANDOM_ID for block in message.blocks)
