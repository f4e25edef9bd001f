"""Reads messages: their rows, and the segments that their bodies are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from contextstash_storage.bodies import Row, bodies_in, damaged, segments_at, segments_between
from contextstash_storage.errors import DamagedError
from contextstash_storage.log import read_edits, read_requests
from contextstash_storage.outputs import read_outputs
from contextstash_storage.records import (
    BlockType,
    Kind,
    KnownPart,
    Message,
    MessageOutline,
    Role,
    Session,
    SessionNews,
    TokenSum,
)
from contextstash_storage.rows import check_row, message_of, outline_of
from contextstash_storage.sessions import read_session, row_of
from contextstash_storage.transaction import MAX_INTEGER, Tx, held, listed, only

_ROWS = "SELECT seq, key, facts, created_at, fingerprint, checksum FROM messages WHERE session = ? AND seq"


def read_messages(
    tx: Tx, owner: str, session_id: str, *, first: int = 0, last: int | None = None, bodies: bool = True
) -> list[Message]:
    """Messages `first..last`, both included, in order. Raises DamagedError if one is missing or damaged."""
    row, session = read_session(tx, owner, session_id)
    return messages_between(tx, row, session, first, MAX_INTEGER if last is None else last, bodies=bodies)


def messages_between(
    tx: Tx, row: int, session: Session, first: int, last: int, *, bodies: bool = True
) -> list[Message]:
    """The same for a session that is read already."""
    first, last = max(first, 0), min(last, session.counters.messages - 1)
    if first > last:
        return []
    rows = tx.rows(f"{_ROWS} BETWEEN ? AND ? ORDER BY seq", (row, first, last))
    if [each[0] for each in rows] != list(range(first, last + 1)):
        missing = sorted(set(range(first, last + 1)).difference(each[0] for each in rows))
        raise damaged(f"message {missing[0] if missing else first} of session '{session.session_id}'")
    return _made(row, session.session_id, rows, segments_between(tx, row, first, last) if bodies else None)


def read_outlines(tx: Tx, row: int, *, first: int = 0, last: int = MAX_INTEGER) -> list[MessageOutline]:
    """What the messages `first..last` are made of, in order, but for those that the agent does not see. Raises
    DamagedError."""
    found = []
    for seq, key, facts, created, fingerprint, noted in tx.rows(
        f"{_ROWS} BETWEEN ? AND ? ORDER BY seq", (row, first, last)
    ):
        check_row(noted, seq, fingerprint, key, created, facts)
        found.append(outline_of(seq, facts))
    return [each for each in found if each is not None]


def read_messages_at(tx: Tx, owner: str, session_id: str, seqs: Sequence[int]) -> list[Message]:
    """The messages at these positions, with their bodies, in order of position."""
    row = row_of(tx, owner, session_id)
    rows = tx.rows(f"{_ROWS} IN {tx.numbers} ORDER BY seq", (row, listed(set(seqs))))
    return _made(row, session_id, rows, segments_at(tx, row, [each[0] for each in rows]))


def _made(row: int, session_id: str, rows: Sequence[Sequence[Any]], segments: Sequence[Row] | None) -> list[Message]:
    """The messages of these rows, with the bodies in the segments if these are read. Raises DamagedError, which names
    the damaged messages."""
    seqs = [int(each[0]) for each in rows]
    try:
        stored = {} if segments is None else bodies_in(row, segments, seqs)
        return [message_of(session_id, each, stored.get(seq)) for seq, each in zip(seqs, rows, strict=True)]
    except DamagedError as error:
        raise DamagedError(f"Session '{session_id}': {error}") from error


def read_fingerprints(tx: Tx, row: int, *, first: int = 0, count: int = MAX_INTEGER) -> list[bytes]:
    """The fingerprint of each message from this position on, of at most `count`."""
    text = "SELECT fingerprint FROM messages WHERE session = ? AND seq >= ? ORDER BY seq LIMIT ?"
    return [fingerprint for (fingerprint,) in tx.rows(text, (row, first, count))]


def find_key(tx: Tx, row: int, name: str) -> int | None:
    """The position of the message that has this key; None if there is none."""
    found: int | None = only(tx.rows("SELECT seq FROM messages WHERE session = ? AND key = ?", (row, held(name))))
    return found


def read_news(tx: Tx, owner: str, session_id: str, known: KnownPart) -> SessionNews:
    """A session, its newest request, and beyond what the reader knows of it its edits and its messages with their
    outputs: what each turn of an agent loop needs, as of one moment. Raises SessionNotFoundError."""
    row, session = read_session(tx, owner, session_id)
    counters = session.counters
    newest = read_requests(tx, row) if counters.requests else []
    edits = read_edits(tx, row, after=known.edits) if counters.edits > known.edits else []
    span = known.span(counters)
    messages = [] if span is None else messages_between(tx, row, session, *span)
    outputs = [] if span is None else read_outputs(tx, row, first=span[0], last=span[1])
    return SessionNews(session, known, newest[0] if newest else None, tuple(edits), tuple(messages), tuple(outputs))


def token_sums(tx: Tx, row: int, width: int) -> list[TokenSum]:
    """The tokens that the model saw of the history, summed over runs of `width` messages."""
    sums: Counter[tuple[int, Role, Kind, BlockType]] = Counter()
    for message in read_outlines(tx, row):
        for block in message.blocks:
            sums[message.seq // width, message.role, message.kind, block.type] += block.tokens
    return [
        TokenSum(run=run, role=role, kind=kind, type=name, tokens=tokens)
        for (run, role, kind, name), tokens in sums.items()
    ]
