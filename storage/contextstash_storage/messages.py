"""Reads messages: their rows, and the segments that their bodies are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from contextstash_storage.bodies import Row, bodies_in, damaged, segments_at, segments_between
from contextstash_storage.errors import DamagedError
from contextstash_storage.log import edit_records, read_requests
from contextstash_storage.outputs import read_outputs
from contextstash_storage.records import KnownPart, Message, Session, SessionNews
from contextstash_storage.rows import edit_of, message_of
from contextstash_storage.sessions import read_session
from contextstash_storage.transaction import Tx, held, listed, only

_ROWS = "SELECT seq, key, facts, created_at, fingerprint, checksum FROM messages WHERE session = ? AND seq"


@dataclass(frozen=True, slots=True)
class MessageRows:
    """Rows of messages in order, and the segments that their bodies are in; None if bodies are not read. The messages
    are made of them when no transaction is open any more, as that takes ten times as long as reading the rows."""

    session: int
    session_id: str
    rows: Sequence[Sequence[Any]] = ()
    segments: Sequence[Row] | None = None

    def messages(self) -> list[Message]:
        """The messages of these rows. Raises DamagedError, which names the damaged messages if there are some."""
        seqs = [int(row[0]) for row in self.rows]
        try:
            stored = {} if self.segments is None else bodies_in(self.session, self.segments, seqs)
        except DamagedError as error:
            raise DamagedError(f"Session '{self.session_id}': {error}") from error
        return [message_of(self.session_id, row, stored.get(seq)) for seq, row in zip(seqs, self.rows, strict=True)]


def rows_between(tx: Tx, row: int, session: Session, first: int, last: int, *, bodies: bool = True) -> MessageRows:
    """The rows of the messages `first` to `last` of a session. Raises DamagedError if one is missing."""
    first, last = max(first, 0), min(last, session.counters.messages - 1)
    if first > last:
        return MessageRows(row, session.session_id)
    rows = tx.rows(f"{_ROWS} BETWEEN ? AND ? ORDER BY seq", (row, first, last))
    if [each[0] for each in rows] != list(range(first, last + 1)):
        missing = sorted(set(range(first, last + 1)).difference(each[0] for each in rows))
        raise damaged(f"message {missing[0] if missing else first} of session '{session.session_id}'")
    segments = segments_between(tx, row, first, last) if bodies else None
    return MessageRows(row, session.session_id, rows, segments)


def rows_at(tx: Tx, row: int, session_id: str, seqs: Sequence[int]) -> MessageRows:
    """The rows of the messages at these positions, in order."""
    rows = tx.rows(f"{_ROWS} IN {tx.numbers} ORDER BY seq", (row, listed(set(seqs))))
    return MessageRows(row, session_id, rows, segments_at(tx, row, [each[0] for each in rows]))


def read_fingerprints(tx: Tx, row: int, *, first: int = 0, count: int = 2**63 - 1) -> list[bytes]:
    """The fingerprint of each message from this position on, of at most `count`."""
    text = "SELECT fingerprint FROM messages WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?"
    return [fingerprint for (fingerprint,) in tx.rows(text, (row, first, count))]


def find_key(tx: Tx, row: int, name: str) -> int | None:
    """The position of the message that has this key; None if there is none."""
    found: int | None = only(tx.rows("SELECT seq FROM messages WHERE session = ? AND key = ?", (row, held(name))))
    return found


@dataclass(frozen=True, slots=True)
class News:
    """The news of a session as they are stored."""

    found: SessionNews
    edits: Sequence[str]
    messages: MessageRows

    def read(self) -> SessionNews:
        """The news."""
        return SessionNews(
            self.found.session,
            self.found.known,
            self.found.request,
            tuple(map(edit_of, self.edits)),
            tuple(self.messages.messages()),
            self.found.outputs,
        )


def read_news(tx: Tx, owner: str, session_id: str, known: KnownPart) -> News:
    """A session, its newest request, and beyond what the reader knows of it its edits and its messages with their
    outputs. Raises SessionNotFoundError."""
    row, session = read_session(tx, owner, session_id)
    counters = session.counters
    newest = read_requests(tx, row) if counters.requests else []
    edits = edit_records(tx, row, known.edits) if counters.edits > known.edits else []
    span = known.span(counters)
    found = MessageRows(row, session_id) if span is None else rows_between(tx, row, session, *span)
    outputs = () if span is None else tuple(read_outputs(tx, row, first=span[0], last=span[1]))
    return News(SessionNews(session, known, newest[0] if newest else None, outputs=outputs), edits, found)
