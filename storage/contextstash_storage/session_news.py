"""What is new in a session for a reader who knows the rest of it, as of one moment: records alone."""

from __future__ import annotations

from dataclasses import dataclass

from contextstash_storage.records import Counters, Edit, Message, Output, Request, Session


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What a reader knows of a session: its messages before position `first`, and that one, which is read again to see
    that the session is still the same; None for no message. `edits` are the numbers of those that are not read. If more
    than `most` messages are new, only the first is read."""

    first: int | None = None
    edits: int = 0
    most: int = 100

    def span(self, counters: Counters) -> tuple[int, int] | None:
        """The first and the last message to read; None if there is none."""
        last = counters.messages - 1
        if self.first is None or self.first > last:
            return None
        return self.first, last if last - self.first <= self.most else self.first


@dataclass(frozen=True, slots=True)
class SessionNews:
    """A session, its newest request, and beyond the known part its edits, and its messages with their outputs."""

    session: Session
    known: KnownPart
    request: Request | None = None
    edits: tuple[Edit, ...] = ()
    messages: tuple[Message, ...] = ()
    outputs: tuple[Output, ...] = ()
