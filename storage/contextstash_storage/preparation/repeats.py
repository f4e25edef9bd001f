"""Which messages of a batch are stored already, given what is stored: by position, or by the batch's id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from contextstash_storage.errors import BadInputError
from contextstash_storage.preparation.messages import Prepared, batch_fingerprint

COMPARED_MESSAGES = 64
"""How many of the newest messages an unidentified batch is compared with; longer repetitions are rare, and each
comparison is an indexed read of about 2 µs."""

FINGERPRINT_BYTES = 16
"""Of the 32 that a fingerprint has. Two different messages have the same 16 with a chance of 1 in 10^20 among 10^9."""

OPENING_MESSAGES = 2
"""A batch that begins with as many messages as the session does is probably the whole conversation again. One is too
few: people say "continue" twice."""


@dataclass(frozen=True, slots=True)
class Known:
    """The first `count` messages of a batch are stored already, the first of them at `first_seq`."""

    count: int
    first_seq: int


def check_position(first_seq: int, length: int) -> None:
    """Raise BadInputError if a position is beyond the end of a session."""
    if first_seq > length:
        raise BadInputError(
            f"first_seq is {first_seq}, but the next position of this session is {length}: record the messages from"
            f" position {length} on."
        )


def known_at(stored: Sequence[bytes], length: int, batch: Sequence[Prepared], first_seq: int, done: int) -> Known:
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


def known_of_id(rows: Sequence[tuple[int, int, bytes]], length: int, batch: Sequence[Prepared], batch_id: str) -> Known:
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


def repetitions(length: int, batch: Sequence[Prepared]) -> list[tuple[int, list[bytes]]]:
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


def stored_fingerprint(fingerprint: bytes) -> bytes:
    """What is stored of a message's fingerprint; former versions stored all of it."""
    return fingerprint[:FINGERPRINT_BYTES]
