"""Reads messages: their rows, and the segments that their bodies are in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextstash_storage.codec.record_json import message_of
from contextstash_storage.codec.segments import bodies_in, damaged
from contextstash_storage.errors import DamagedError
from contextstash_storage.records import Message, Session
from contextstash_storage.sql.bodies import Rows, segments_at, segments_between
from contextstash_storage.sql.rows import FEW
from contextstash_storage.sql.steps import Key, Statement, Steps, marks

_ROWS = "SELECT seq, key, derived, created_at, fingerprint, checksum FROM messages WHERE {of} AND seq"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows of messages in order, and the segments that their bodies are in; None if bodies are not read."""

    key: Key
    session_id: str
    rows: Sequence[Sequence[Any]] = ()
    segments: Rows | None = None

    async def messages(self) -> list[Message]:
        """The messages of these rows; many are made in a thread, so that other calls need not wait. Raises
        DamagedError, which names the damaged messages if there are some."""
        return self.made() if len(self.rows) <= FEW else await asyncio.to_thread(self.made)

    def made(self) -> list[Message]:
        """The same, at once."""
        seqs = [int(row[0]) for row in self.rows]
        try:
            stored = {} if self.segments is None else bodies_in(self.key, self.segments, seqs)
        except DamagedError as error:
            raise damaged_in(self.session_id, error) from error
        return [message_of(self.session_id, row, stored.get(seq)) for seq, row in zip(seqs, self.rows, strict=True)]


def damaged_in(session_id: str, error: DamagedError) -> DamagedError:
    """The error with the name of the session whose messages are damaged."""
    return DamagedError(f"Session '{session_id}': {error}")


def rows_between(key: Key, session: Session, first: int, last: int, *, bodies: bool = True) -> Steps[MessageRows]:
    """The rows of the messages `first` to `last` of a session. Raises DamagedError if one is missing."""
    first, last = max(first, 0), min(last, session.counters.messages - 1)
    if first > last:
        return MessageRows(key, session.session_id)
    rows = yield Statement(f"{_ROWS} BETWEEN ? AND ? ORDER BY seq", (*key, first, last))
    if [row[0] for row in rows] != list(range(first, last + 1)):
        missing = sorted(set(range(first, last + 1)).difference(row[0] for row in rows))
        raise damaged(f"message {missing[0] if missing else first} of session '{session.session_id}'")
    segments = (yield from segments_between(key, first, last)) if bodies else None
    return MessageRows(key, session.session_id, rows, segments)


def rows_at(key: Key, session_id: str, seqs: Sequence[int]) -> Steps[MessageRows]:
    """The rows of the messages at these positions, in order."""
    rows: list[Any] = []
    wanted = sorted(set(seqs))
    for start in range(0, len(wanted), MOST):
        some = wanted[start : start + MOST]
        rows += yield Statement(f"{_ROWS} IN ({marks(some)}) ORDER BY seq", (*key, *some))
    segments = yield from segments_at(key, [row[0] for row in rows])
    return MessageRows(key, session_id, rows, segments)


MOST = 500
"""How many positions one statement names."""
