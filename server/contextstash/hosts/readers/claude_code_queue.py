"""The prompts that a user types while Claude Code's model works: the `queue-operation` records of its transcripts.

A prompt is queued (`enqueue`, with its text). The client takes it out either as the next prompt (`dequeue`), which is
then a record of its own, or gives it to the model amid a turn (`remove`). Newer versions write an attachment then
(2.1.179 does), older ones (2.1.80 and before) nothing else: the queue is the only record of these words.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from contextstash.hosts.readers.transcript import moment, text_of
from contextstash.service.recording.transcript_records import TranscriptMessage

MAX_QUEUED = 50
"""Prompts that are remembered, far more than a user types ahead. It bounds the reader's state."""

NOTIFICATION = "<task-notification>"
"""How the client's own entries in the queue begin."""


class PromptQueue:
    """The prompts that wait, and those that were given to the model and have no record of their own yet. Each is [text,
    time of its record]; of one that was given, the time at which it was."""

    def __init__(self, state: dict[str, Any]) -> None:
        self._waiting: list[list[str]] = state.setdefault("waiting", [])
        self._given: list[list[str]] = state.setdefault("given", [])

    def note(self, record: dict[str, Any]) -> None:
        """Note one operation."""
        operation, text = record.get("operation"), text_of(record.get("content"))
        time = text_of(record.get("timestamp")) or ""
        if operation == "enqueue":
            # An entry without a text, such as an image, is remembered too, since it is taken out like the others.
            self._waiting.append([text or "", time])
            del self._waiting[:-MAX_QUEUED]
        elif operation in ("dequeue", "remove"):
            taken = self._next()
            if taken and operation == "remove" and taken[0].strip():
                self._given.append([*taken, time])
                del self._given[:-MAX_QUEUED]
        elif operation in ("popOne", "popAll"):
            self._waiting[:] = [entry for entry in self._waiting if entry[0] != (text or "")]

    def _next(self) -> list[str] | None:
        """The entry that the client takes next: the user's own before its notifications, the oldest first."""
        own = (place for place, entry in enumerate(self._waiting) if not entry[0].startswith(NOTIFICATION))
        place = next(own, 0)
        return self._waiting.pop(place) if self._waiting else None

    def attached(self, text: str) -> None:
        """Note that an entry has a record of its own."""
        self._given[:] = [entry for entry in self._given if entry[0] != text]

    def given_before(self, time: datetime | None) -> Iterator[TranscriptMessage]:
        """The prompts that the model had been given when it replied at this time."""
        ready = [entry for entry in self._given if _is_before(moment(entry[2]), time)]
        self._given[:] = [entry for entry in self._given if entry not in ready]
        for text, queued, _ in ready:
            yield TranscriptMessage(
                body={"role": "user", "content": [{"type": "text", "text": text}]},
                key=f"queued-{queued}",
                created_at=moment(queued),
                by_host=text.startswith(NOTIFICATION),
            )


def _is_before(given: datetime | None, replied: datetime | None) -> bool:
    return given is None or replied is None or given <= replied
