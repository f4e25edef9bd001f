"""Compares the counts that an exported session states with the parts that its file holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import (
    Call,
    Copied,
    DeclaredVersion,
    EditRecord,
    Event,
    NewMessage,
    Request,
    Session,
)

END = "end"
"""The key of the last record of a session, which says how many of each part there are before it."""

PARTS: Mapping[str, type] = {
    "messages": NewMessage,
    "edits": EditRecord,
    "events": Event,
    "calls": Call,
    "declared_parts": DeclaredVersion,
    "requests": Request,
}

LATER_PARTS = frozenset({"declared_parts", "requests"})
"""Parts that files before version 4 do not hold and do not count."""

NOT_STORED = "Nothing of that session was stored. Export it again, or take a whole copy of the file."


class PartCounts:
    """How many of each part of a session were read so far. Each raises BadInputError on what does not fit."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._counts = dict.fromkeys(PARTS, 0)
        self._keys: set[str] = set()

    def add(self, item: Copied, line: int, seq: int | None) -> None:
        """Count the part that stands on this line. `seq` is the position that the line itself says, if it does."""
        name = next(name for name, kind in PARTS.items() if isinstance(item, kind))
        place = self._counts[name]
        self._counts[name] += 1
        if isinstance(item, NewMessage):
            if seq is not None and seq != place:
                raise _misplaced(line, f"message {seq}", f"message {place}")
            if item.key is not None and item.key in self._keys:
                raise BadInputError(f"Line {line} holds a message for the second time. {NOT_STORED}")
            self._keys.update(() if item.key is None else (item.key,))
        elif isinstance(item, EditRecord) and item.edit_id != place + 1:
            raise _misplaced(line, f"edit {item.edit_id}", f"edit {place + 1}")

    def check_end(self, told: Mapping[str, Any] | None) -> None:
        """Compare all that was read with the session's own counters, and with its last record if it has one."""
        counters = self._session.counters
        expected = {"messages": counters.messages, "edits": counters.edits}
        if told is not None:
            expected |= {name: told[name] for name in PARTS if name in told or name not in LATER_PARTS}
        wrong = [
            f"{self._counts[name]} of {count} {name}" for name, count in expected.items() if self._counts[name] != count
        ]
        if wrong:
            name = self._session.session_id
            raise BadInputError(f"The file holds {', '.join(wrong)} of session {name}. {NOT_STORED}")


def _misplaced(line: int, found: str, expected: str) -> BadInputError:
    return BadInputError(
        f"Line {line} holds {found} where {expected} is expected: a line is missing, doubled or moved. {NOT_STORED}"
    )
