"""Finds the messages of a batch that are stored already, the same for every store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash_storage.errors import BadInputError
from contextstash_storage.preparation.messages import Batch, Prepared, batch_fingerprint, stored_fingerprint
from contextstash_storage.sql.steps import Key, Statement, Steps

COMPARED_MESSAGES = 64
"""How many of the newest messages an unidentified batch is compared with; longer repetitions are rare, and each
comparison is an indexed read of about 2 µs."""

OPENING_MESSAGES = 2
"""A batch that begins with as many messages as the session does is probably the whole conversation again. One is too
few: people say "continue" twice."""


@dataclass(frozen=True, slots=True)
class Known:
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


def _known_at(stored: Sequence[bytes], length: int, batch: Sequence[Prepared], first_seq: int, done: int) -> Known:
    """How much of a batch is stored, given the fingerprints that stand where its messages from number `done` on would.
    Raises BadInputError if another message stands at one of these positions."""
    start = first_seq + done
    for seq, (known, prepared) in enumerate(zip(stored, batch[done:], strict=False), start=start):
        if known != prepared.fingerprint[: len(known)]:
            raise BadInputError(
                f"At position {seq} another message is stored than message {seq - first_seq} of this batch; the next"
                f" position is {length}. If the conversation was changed, pass the whole list with whole=true."
            )
    return Known(done + len(stored), first_seq)


def _known_of_id(
    rows: Sequence[tuple[int, int, bytes]], length: int, batch: Sequence[Prepared], batch_id: str
) -> Known:
    """How much of a batch is stored, given what was noted of the pieces of the batch of this id: first position, number
    of messages, the batch's fingerprint. Raises BadInputError if the id was used for other messages."""
    if not rows:
        return Known(0, length)
    first_seq, _, fingerprint = rows[0]
    if fingerprint != batch_fingerprint(batch):
        raise BadInputError(
            f"The batch_id '{batch_id}' was used in this session for other messages, from position {first_seq} on."
            " Send exactly the same batch again, or a new batch_id with new messages."
        )
    return Known(sum(count for _, count, _ in rows), first_seq)


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


def fingerprints(key: Key, first: int, count: int) -> Steps[list[bytes]]:
    """The fingerprints of at most `count` messages from a position on."""
    rows = yield Statement(
        "SELECT fingerprint FROM messages WHERE {of} AND seq >= ? ORDER BY seq LIMIT ?", (*key, first, count)
    )
    return [stored_fingerprint(fingerprint) for (fingerprint,) in rows]


def known(key: Key, length: int, batch: Batch, done: int = 0) -> Steps[Known]:
    """How much of a batch is stored in a session of this length; `done` messages were compared before. Raises
    BadInputError if other messages are stored at its position or under its id."""
    batch.check_markers()
    if batch.first_seq is not None:
        _check_position(batch.first_seq, length)
        start, left = batch.first_seq + done, len(batch.messages) - done
        stored = (yield from fingerprints(key, start, left)) if start < length and left else []
        return _known_at(stored, length, batch.messages, batch.first_seq, done)
    if batch.batch_id is not None:
        text = "SELECT first_seq, count, fingerprint FROM batches WHERE {of} AND batch_id = ? ORDER BY first_seq"
        rows = yield Statement(text, (*key, batch.batch_id))
        return _known_of_id([tuple(row) for row in rows], length, batch.messages, batch.batch_id)
    return Known(done, length)


def looks_repeated(key: Key, length: int, batch: Batch) -> Steps[bool]:
    """Whether a batch that nothing identifies is equal to the newest messages, or begins as the session does. It is
    stored all the same: only its sender knows whether it is a repetition."""
    for first, marks in () if batch.is_identified else _repetitions(length, batch.messages):
        if (yield from fingerprints(key, first, len(marks))) == [stored_fingerprint(mark) for mark in marks]:
            return True
    return False
