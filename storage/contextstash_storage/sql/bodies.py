"""The bodies of a session's messages, in segments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from contextstash_storage.codec.segments import MESSAGES, Segment, Stored, grouped, unpacked
from contextstash_storage.errors import StoreError
from contextstash_storage.sql.steps import Key, Repeated, Statement, Steps

Rows = list[tuple[int, int, bytes]]
"""Of segments: the position of the first message, how many messages it has, and its content."""

RUNS_AT_ONCE = 50
"""How many runs of positions one statement reads."""


def store_bodies(key: Key, first_seq: int, stored: Sequence[Stored]) -> Steps[None]:
    """Store the content of new messages from this position on. Those of a few messages are a small segment, until there
    are as many as a full one has."""
    if not stored:
        return
    yield from _insert(key, grouped(key, first_seq, stored))
    before, after = first_seq // MESSAGES, (first_seq + len(stored)) // MESSAGES
    if before != after:
        yield from _join(key, after * MESSAGES)


def _insert(key: Key, segments: Sequence[Segment]) -> Steps[None]:
    yield Repeated(
        'INSERT INTO bodies ({key}, first_seq, messages, "full", content) VALUES ({keys}, ?, ?, ?, ?)',
        [(*key, each.first_seq, each.messages, int(each.is_full), each.content) for each in segments],
    )


def _join(key: Key, end: int) -> Steps[None]:
    """Join the small segments before a position to full ones."""
    rows = yield Statement(
        'SELECT first_seq, messages, content FROM bodies WHERE {of} AND "full" = 0 AND first_seq + messages <= ?'
        " ORDER BY first_seq",
        (*key, end),
    )
    for _, run in groupby(_runs(rows), key=lambda each: each[0]):
        small = [row for _, row in run]
        try:
            joined = grouped(key, small[0][0], [one for row in small for one in unpacked(key, *row).values()])
        except StoreError:  # damaged: it stays as it is, and recording goes on
            continue
        if not any(segment.is_full for segment in joined):
            continue
        yield Repeated(
            "DELETE FROM bodies WHERE {of} AND first_seq = ?", [(*key, first_seq) for first_seq, _, _ in small]
        )
        yield from _insert(key, joined)


def _runs(rows: Sequence[tuple[int, int, bytes]]) -> list[tuple[int, tuple[int, int, bytes]]]:
    """Each row after the number of its run: rows of one run follow each other."""
    found = []
    run = 0
    following: int | None = None
    for first_seq, messages, content in rows:
        run += following is not None and first_seq != following
        following = first_seq + messages
        found.append((run, (first_seq, messages, content)))
    return found


def segments_between(key: Key, first: int, last: int) -> Steps[Rows]:
    """The segments that hold the messages `first` to `last`."""
    return (yield from _segments(key, [(first, last)]))


def segments_at(key: Key, seqs: Sequence[int]) -> Steps[Rows]:
    """The segments that hold the messages at these positions."""
    runs: list[tuple[int, int]] = []
    for seq in sorted(set(seqs)):
        if runs and seq <= runs[-1][1] + MESSAGES:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    found: Rows = []
    for start in range(0, len(runs), RUNS_AT_ONCE):
        found += yield from _segments(key, runs[start : start + RUNS_AT_ONCE])
    return found


def _segments(key: Key, runs: Sequence[tuple[int, int]]) -> Steps[Rows]:
    # The segment that a run begins in is the last one that begins before it.
    one = (
        "SELECT first_seq, messages, content FROM bodies WHERE {of} AND first_seq <= ? AND first_seq >="
        " coalesce((SELECT first_seq FROM bodies WHERE {of} AND first_seq <= ? ORDER BY first_seq DESC LIMIT 1), 0)"
    )
    text = " UNION ".join([one] * len(runs)) if len(runs) > 1 else one
    rows = yield Statement(text, [value for first, last in runs for value in (*key, last, *key, first)])
    return [(first_seq, messages, bytes(content)) for first_seq, messages, content in rows]
