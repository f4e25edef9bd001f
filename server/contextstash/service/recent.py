"""What is remembered in memory of the sessions used last, so that a server that runs for months does not grow."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

Value = TypeVar("Value")


class RecentSessions(Generic[Value]):
    """A value for each of the last `limit` sessions it was set for; the oldest is forgotten first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: OrderedDict[str, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, session_id: str) -> Value | None:
        """The session's value, None if there is none (any more)."""
        return self._known.get(session_id)

    def set(self, session_id: str, value: Value) -> None:
        """Remember the value in place of an earlier one."""
        self._known[session_id] = value
        self._known.move_to_end(session_id)
        while len(self._known) > self._limit:
            self._known.popitem(last=False)

    def pop(self, session_id: str) -> Value | None:
        """Forget the session's value and return it."""
        return self._known.pop(session_id, None)
