"""Appends messages, the same for every store: those of a batch that are stored already are skipped, the others are
handed to the store's MessageWriter, and the session's counters change with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from contextstash_storage.codec.record_json import group_of
from contextstash_storage.errors import BadInputError, EditConflictError, SessionNotFoundError
from contextstash_storage.records import Appended, Counters, Message, NewMessage, Session
from contextstash_storage.sql.edits import insert_edits, number_edits
from contextstash_storage.sql.logs import insert_call, reports_again
from contextstash_storage.sql.prepared_messages import (
    Batch,
    Prepared,
    batch_fingerprint,
    reported_call,
    with_counters,
)
from contextstash_storage.sql.requests import book_usage
from contextstash_storage.sql.sessions import note_batch, put_cursor
from contextstash_storage.sql.steps import MAX_INTEGER, Key, Statement, Steps

COMPARED_MESSAGES = 64
"""How many of the newest messages an unidentified batch is compared with; longer repetitions are rare, and each
comparison is an indexed read of about 2 µs."""

OPENING_MESSAGES = 2
"""A batch that begins with as many messages as the session does is probably the whole conversation again. One is too
few: people say "continue" twice."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The first `count` messages of a batch are stored already, the first of them at `first_seq`."""

    count: int
    first_seq: int


def _check_position(first_seq: int, length: int) -> None:
    """Raise BadInputError if a position is beyond the end of a session."""
    if first_seq > length:
        raise BadInputError(
            f"first_seq is {first_seq}, but the next position of this session is {length}: record the messages from"
            f" position {length} on."
        )


def _known_at(stored: Sequence[bytes], length: int, batch: Sequence[Prepared], first_seq: int, done: int) -> _Known:
    """How much of a batch is stored, given the fingerprints that stand where its messages from number `done` on would.
    Raises BadInputError if another message stands at one of these positions."""
    start = first_seq + done
    for seq, (known, prepared) in enumerate(zip(stored, batch[done:], strict=False), start=start):
        if known != prepared.fingerprint:
            raise BadInputError(
                f"At position {seq} another message is stored than message {seq - first_seq} of this batch; the next"
                f" position is {length}. If the conversation was changed, pass the whole list with whole=true."
            )
    return _Known(done + len(stored), first_seq)


def _known_of_id(
    rows: Sequence[tuple[int, int, bytes]], length: int, batch: Sequence[Prepared], batch_id: str
) -> _Known:
    """How much of a batch is stored, given what was noted of the pieces of the batch of this id: first position, number
    of messages, the batch's fingerprint. Raises BadInputError if the id was used for other messages."""
    if not rows:
        return _Known(0, length)
    first_seq, _, fingerprint = rows[0]
    if fingerprint != batch_fingerprint(batch):
        raise BadInputError(
            f"The batch_id '{batch_id}' was used in this session for other messages, from position {first_seq} on."
            " Send exactly the same batch again, or a new batch_id with new messages."
        )
    return _Known(sum(count for _, count, _ in rows), first_seq)


def _repetitions(length: int, batch: Sequence[Prepared]) -> list[tuple[int, list[bytes]]]:
    """Positions and the fingerprints that stand there if a batch is a repetition; one such run is enough."""
    if not length or not batch:
        return []
    marks = [prepared.fingerprint for prepared in batch[:COMPARED_MESSAGES]]
    opening = min(OPENING_MESSAGES, length)
    found = []
    if len(batch) > 1 and len(marks) >= opening:
        found.append((0, marks[:opening]))
    if len(batch) <= min(length, COMPARED_MESSAGES):
        found.append((length - len(batch), marks))
    return found


def read_fingerprints(key: Key, *, first: int = 0, count: int = MAX_INTEGER) -> Steps[list[bytes]]:
    """The fingerprint of each message from this position on, of at most `count`."""
    rows = yield Statement(
        "SELECT fingerprint FROM messages WHERE {of} AND seq >= ? ORDER BY seq LIMIT ?", (*key, first, count)
    )
    return [bytes(fingerprint) for (fingerprint,) in rows]


def _known(key: Key, length: int, batch: Batch, done: int) -> Steps[_Known]:
    """How much of a batch is stored in a session of this length; `done` messages were compared before. Raises
    BadInputError if other messages are stored at its position or under its id."""
    batch.check_markers()
    if batch.first_seq is not None:
        _check_position(batch.first_seq, length)
        start, left = batch.first_seq + done, len(batch.messages) - done
        stored = (yield from read_fingerprints(key, first=start, count=left)) if start < length and left else []
        return _known_at(stored, length, batch.messages, batch.first_seq, done)
    if batch.batch_id is not None:
        text = "SELECT first_seq, count, fingerprint FROM batches WHERE {of} AND batch_id = ? ORDER BY first_seq"
        rows = yield Statement(text, (*key, batch.batch_id))
        return _known_of_id([tuple(row) for row in rows], length, batch.messages, batch.batch_id)
    return _Known(done, length)


def _looks_repeated(key: Key, length: int, batch: Batch) -> Steps[bool]:
    """Whether a batch that nothing identifies is equal to the newest messages, or begins as the session does. It is
    stored all the same: only its sender knows whether it is a repetition."""
    for first, marks in () if batch.is_identified else _repetitions(length, batch.messages):
        if (yield from read_fingerprints(key, first=first, count=len(marks))) == marks:
            return True
    return False


class MessageWriter(Protocol):
    """Stores messages of one session in a store's own form, within one transaction."""

    key: Key

    def reserve(self, messages: Sequence[Prepared]) -> Steps[None]:
        """Look up at once what storing these messages needs, if the store gains by that."""

    def has_key(self, name: str) -> Steps[bool]:
        """Whether a message with this key is stored."""

    def add(self, seq: int, prepared: Prepared) -> Steps[Message]:
        """Store a message at its position, at the latest at the next flush, with its outputs and the rows by which it
        is found."""

    def flush(self) -> Steps[None]:
        """Store all that was added."""

    def store_counters(self, session: Session, counters: Counters) -> Steps[Session]:
        """Store the session's counters after what was added; returns the changed session."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a batch has got. `done` of its messages are stored, by this call or before; `left` are the session's
    counters as the last piece left them."""

    done: int = 0
    stored: tuple[Message, ...] = ()
    first_seq: int | None = None
    repeats: bool = False
    left: Counters | None = None
    into: tuple[Key, datetime] | None = None
    """The key of the session that the first piece went into, and when that was made: a row number can come again."""
    appended: Appended | None = None
    """What the append did, once it is complete."""


def append_piece(
    writer: MessageWriter, session: Session, batch: Batch, progress: Progress, most: int | None = None
) -> Steps[Progress]:
    """Store the next piece of a batch, of about the size `most`, or all of it; returns how far it has got."""
    key, counters, into = writer.key, session.counters, (writer.key, session.created_at)
    if progress.into not in (None, into):
        raise SessionNotFoundError(f"The session '{batch.session_id}' was deleted, and made again, meanwhile.")
    if progress.left is None:
        progress = replace(progress, repeats=(yield from _looks_repeated(key, counters.messages, batch)))
    counters = yield from _with_edits_before(key, counters, batch, progress)
    known = yield from _known(key, counters.messages, batch, progress.done)
    done, stored, counters = yield from _store_messages(
        writer, with_counters(session, counters), batch, known.count, most
    )
    if batch.batch_id is not None and stored:
        yield from note_batch(key, batch.batch_id, stored[0].seq, len(stored), batch_fingerprint(batch.messages))
    complete = done == len(batch.messages)
    if complete and batch.edits is not None and stored:
        after = number_edits(batch.edits(counters, stored), counters.edits)
        counters = yield from insert_edits(key, counters, after, own=False)
    if complete and batch.cursor is not None:
        yield from put_cursor(batch.owner, key, batch.cursor)
    if stored or counters != session.counters:
        session = yield from writer.store_counters(session, counters)
    progress = replace(
        progress,
        done=done,
        stored=progress.stored + stored,
        first_seq=known.first_seq if progress.first_seq is None else progress.first_seq,
        left=counters,
        into=into,
    )
    return replace(progress, appended=_appended(batch, progress, session)) if complete else progress


def _appended(batch: Batch, progress: Progress, session: Session) -> Appended:
    return Appended(
        messages=progress.stored,
        duplicates=len(batch.messages) - len(progress.stored),
        session=session,
        first_seq=None if batch.has_keys or not batch.messages else progress.first_seq,
        repeats=progress.repeats,
    )


def _with_edits_before(key: Key, counters: Counters, batch: Batch, progress: Progress) -> Steps[Counters]:
    """Append the edits that belong before the messages; returns the counters after them."""
    if batch.before is None:
        return counters
    if progress.left is None:
        before = number_edits(batch.before(counters), counters.edits)
        return (yield from insert_edits(key, counters, before, own=False))
    if (counters.messages, counters.edits) != (progress.left.messages, progress.left.edits):
        raise EditConflictError("The session was changed while messages were appended to it.")
    return counters


def _store_messages(
    writer: MessageWriter, session: Session, batch: Batch, done: int, most: int | None
) -> Steps[tuple[int, tuple[Message, ...], Counters]]:
    """Store messages from number `done` on until the piece is full. Returns how many of the batch are stored then,
    those stored now, and the counters."""
    counters = session.counters
    stored: list[Message] = []
    size = 0
    left = batch.messages[done:]
    yield from writer.reserve(left)
    for prepared in left:
        if most is not None:
            size += prepared.size
            if stored and size > (most if batch.messages[done - 1].may_end else 2 * most):
                break
        done += 1
        message = prepared.message
        if message.key is not None and (yield from writer.has_key(message.key)):
            continue
        seq = counters.messages
        stored.append((yield from writer.add(seq, prepared)))
        if message.usage is not None:
            yield from _store_call(writer, message, with_counters(session, counters), seq)
        counters = batch.count(counters, message, seq)
    yield from writer.flush()
    return done, tuple(stored), counters


def _store_call(writer: MessageWriter, message: NewMessage, session: Session, seq: int) -> Steps[None]:
    """Store the model call that a message reports on. A reply recorded in several messages is one call,
    with the last of its reports."""
    assert message.usage is not None
    if (yield from reports_again(writer.key, message.group, message.usage)):
        return
    sent = message.request or session.counters.request
    if sent is not None:
        yield from book_usage(writer.key, sent.number, message.usage)
    start = (yield from _reply_start(writer, message.group, seq)) if sent is None else 0
    yield from insert_call(writer.key, reported_call(message, session, start, sent), message.group)


def _reply_start(writer: MessageWriter, group: str | None, seq: int) -> Steps[int]:
    """The first position of the reply whose part at `seq` is the first that reports usage."""
    if group is None:
        return seq
    yield from writer.flush()
    while seq:
        text = "SELECT derived FROM messages WHERE {of} AND seq = ?"
        [(derived,)] = yield Statement(text, (*writer.key, seq - 1))
        if group_of(derived) != group:
            break
        seq -= 1
    return seq
