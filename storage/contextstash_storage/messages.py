"""Messages: their rows, the segments that their bodies are in, and their tool outputs.

A segment is the bodies of neighbouring messages, compressed together in one zstd frame, as they share most of their
words. The frame's checksum, and the place that is in it, tell a damaged one, or one in another's place, from what was
stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import groupby
from typing import Any

from contextstash_storage.errors import DamagedError, HandleNotFoundError
from contextstash_storage.log import read_edits, read_log
from contextstash_storage.records import (
    HANDLE,
    KnownPart,
    Message,
    Native,
    Output,
    Request,
    Session,
    SessionNews,
)
from contextstash_storage.rows import body_of, checksum, compressed, damaged, facts_json, parsed, to_bytes, zstd
from contextstash_storage.sessions import read_session, row_of
from contextstash_storage.transaction import MAX_INTEGER, Tx, held, listed, only, text_of, time_of

CACHE_MARK = "cache_control"
"""The field that makes Anthropic's API write its prompt cache up to this block. Programs move it to the newest
message of each request, so it is not part of the message's identity."""

FINGERPRINT_BYTES = 16
"""Of the 32 of a SHA-256. Two different messages have the same 16 with a chance of 1 in 10^20 among 10^9."""


def fingerprint(body: Native, json_text: bytes | None = None) -> bytes:
    """What makes two messages the same: their JSON, key order included, cache marks of content blocks left out.
    `json_text` is `to_bytes(body)`, if the caller has it."""
    data = to_bytes(body) if json_text is None else json_text
    if CACHE_MARK.encode() in data:
        data = to_bytes(_without_cache_marks(body))
    return hashlib.sha256(data).digest()[:FINGERPRINT_BYTES]


def _without_cache_marks(value: Any) -> Any:
    """The body without the cache marks of its content blocks, those inside tool results included."""
    if isinstance(value, list):
        return [_without_cache_marks(child) for child in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _without_cache_marks(child) if key == "content" else child
        for key, child in value.items()
        if key != CACHE_MARK
    }


MESSAGES = 64
"""Messages of a segment at most; it ends before each position that is a multiple of it. Of recorded sessions, segments
of 64 take 0.61 to 0.70 of the bytes that the bodies take if each is compressed alone, with a constant dictionary; to
read one message of a segment takes 0.16 ms. With 128, and with level 9, an import is 2 % smaller, but a session that
grows is not, and a search takes 1.14 times as long."""

BYTES = 512_000
"""Bytes from which a segment is full: to read one message, the whole segment is decompressed."""

Segment = tuple[int, int, bytes]
"""Of a segment: the position of its first message, how many it has, and its content."""


def packed(row: int, first_seq: int, stored: Sequence[bytes]) -> tuple[object, ...]:
    """The row of a segment: session's row, first position, messages, content. The content has a line for its place,
    and one for each message."""
    return row, first_seq, len(stored), compressed(b"\n".join([b"%d %d" % (row, first_seq), *stored]))


def _segments_of(row: int, first_seq: int, stored: Sequence[bytes]) -> list[tuple[object, ...]]:
    """The rows of segments of messages that follow each other."""
    found = []
    start = size = 0
    for place, each in enumerate(stored, start=1):
        size += len(each)
        if (first_seq + place) % MESSAGES == 0 or size >= BYTES or place == len(stored):
            found.append(packed(row, first_seq + start, stored[start:place]))
            start, size = place, 0
    return found


@lru_cache(maxsize=16)
def _lines(content: bytes) -> list[bytes]:
    """The lines of a segment. The newest stay in memory: a search, and who reads message by message, come back to the
    same ones. Raises what reading a damaged one raises."""
    return zstd.decompress(content).split(b"\n")


def unpacked(row: int, segment: Segment) -> dict[int, bytes]:
    """What a segment holds of its messages, by their positions. Raises DamagedError, which names the messages, if it is
    damaged."""
    first_seq, messages, content = segment
    try:
        # One of many megabytes does not stay in memory.
        place, *stored = (_lines if len(content) < BYTES else _lines.__wrapped__)(content)
        if place != b"%d %d" % (row, first_seq) or len(stored) != messages:
            raise ValueError("another place")
    except (zstd.ZstdError, ValueError, EOFError, TypeError) as error:
        last = first_seq + messages - 1
        raise damaged(f"message {first_seq}" if messages == 1 else f"messages {first_seq} to {last}") from error
    return dict(enumerate(stored, start=first_seq))


def bodies_in(row: int, segments: Iterable[Segment], seqs: Collection[int]) -> dict[int, bytes]:
    """What is stored of the messages at these positions, given the segments that they are in. Raises DamagedError if a
    segment is missing or damaged."""
    wanted = set(seqs)
    found: dict[int, bytes] = {}
    for segment in _needed(segments, wanted):  # the others of a segment are not kept: the wanted may be scattered
        found |= {seq: stored for seq, stored in unpacked(row, segment).items() if seq in wanted}
    if missing := sorted(wanted.difference(found)):
        raise damaged(f"message {missing[0]}")
    return found


def _needed(segments: Iterable[Segment], seqs: Iterable[int]) -> Iterator[Segment]:
    """The segments that hold one of the messages at these positions. The place of one may be damaged: what it holds is
    missing then."""
    wanted = set(seqs)
    for segment in segments:
        first_seq, messages, _ = segment
        is_place = isinstance(first_seq, int) and isinstance(messages, int)
        if is_place and not wanted.isdisjoint(range(first_seq, first_seq + min(messages, MESSAGES))):
            yield segment


def store_bodies(tx: Tx, row: int, first_seq: int, stored: Sequence[bytes]) -> None:
    """Store the content of new messages from this position on. Those of a few messages are a small segment, until there
    are as many as a full one has."""
    _insert(tx, _segments_of(row, first_seq, stored))
    start = first_seq - first_seq % MESSAGES
    if start < first_seq and start + MESSAGES <= first_seq + len(stored):
        _join(tx, row, start)


def _insert(tx: Tx, rows: Sequence[tuple[object, ...]]) -> None:
    """Store rows of `packed`."""
    tx.many("INSERT INTO bodies (session, first_seq, messages, content) VALUES (?, ?, ?, ?)", rows)


def _join(tx: Tx, row: int, start: int) -> None:
    """Join the small segments of a full one's messages."""
    seqs = range(start, start + MESSAGES)
    small = segments_between(tx, row, seqs[0], seqs[-1])
    try:
        stored = bodies_in(row, small, seqs)
    except DamagedError:  # it stays as it is, and recording goes on
        return
    tx.many("DELETE FROM bodies WHERE session = ? AND first_seq = ?", [(row, first) for first, _, _ in small])
    _insert(tx, _segments_of(row, start, [stored[seq] for seq in seqs]))


def segments_between(tx: Tx, row: int, first: int, last: int) -> list[Segment]:
    """The segments that hold the messages `first` to `last`."""
    return tx.rows(
        "SELECT first_seq, messages, content FROM bodies WHERE session = ? AND first_seq BETWEEN ? AND ?"
        " ORDER BY first_seq",
        (row, first - first % MESSAGES, last),
    )


def segments_at(tx: Tx, row: int, seqs: Iterable[int]) -> list[Segment]:
    """The segments that hold the messages at these positions."""
    numbers = enumerate(sorted({seq // MESSAGES for seq in seqs}))
    runs = [[number for _, number in run] for _, run in groupby(numbers, key=lambda each: each[1] - each[0])]
    spans = [(run[0] * MESSAGES, run[-1] * MESSAGES + MESSAGES - 1) for run in runs]
    return [segment for span in spans for segment in segments_between(tx, row, *span)]


def readable(tx: Tx, row: int, seqs: Collection[int]) -> dict[int, bytes]:
    """What is stored of the messages at these positions, and near them, that can be read."""
    found: dict[int, bytes] = {}
    for segment in _needed(segments_at(tx, row, seqs), seqs):
        with suppress(DamagedError):
            found |= unpacked(row, segment)
    return found


_NAMES = ("handle", "seq", "block", "tool", "argument", "tokens", "characters", "lines", "sha256", "is_error")
_COLUMNS = ", ".join(_NAMES)


def store_outputs(tx: Tx, row: int, outputs: Sequence[Output]) -> None:
    """Store outputs at their positions, each under its handle, or under the next free one of that name."""
    wanted = {output.handle for output in outputs}
    found = (
        tx.rows(f"SELECT handle FROM outputs WHERE session = ? AND handle IN {tx.texts}", (row, listed(wanted)))
        if wanted
        else []
    )
    numbers = {name: _count(tx, row, name) for (name,) in found}
    rows = []
    for each in outputs:
        number = numbers[each.handle] = numbers.get(each.handle, 0) + 1
        handle = _numbered(each.handle, number)
        sizes = (each.tokens, each.characters, each.lines, bytes.fromhex(each.sha256), int(each.is_error))
        rows.append((row, handle, each.seq, each.block, held(each.tool), held(each.argument), *sizes))
    tx.many(f"INSERT INTO outputs (session, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _output(row: Sequence[Any]) -> Output:
    """The output of a row of _COLUMNS. Raises DamagedError if it is damaged."""
    fields = dict(zip(_NAMES, row, strict=True))
    try:
        names = {name: text_of(fields[name]) for name in ("tool", "argument")}
        return Output(**{**fields, **names, "sha256": fields["sha256"].hex(), "is_error": bool(fields["is_error"])})
    except (TypeError, ValueError, AttributeError) as error:
        raise damaged(f"output {fields['handle']}") from error


def read_outputs(tx: Tx, row: int, *, first: int = 0, last: int | None = None) -> list[Output]:
    """The tool outputs of messages `first..last` of a session, both included, in order."""
    text = f"SELECT {_COLUMNS} FROM outputs WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq, block"
    return [_output(each) for each in tx.rows(text, (row, first, MAX_INTEGER if last is None else last))]


def find_output(tx: Tx, owner: str, handle: str, session_id: str | None = None) -> tuple[str, Output]:
    """The session and output of a handle, the newest session's if several hold it. Raises HandleNotFoundError."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        f"SELECT session_id, {_COLUMNS} FROM outputs JOIN sessions USING (session) WHERE owner = ? AND handle = ?"
        f"{condition} ORDER BY updated_at DESC LIMIT 1",
        (owner, held(handle), *values),
    )
    if not rows:
        raise _no_handle(handle, session_id)
    return rows[0][0], _output(rows[0][1:])


def _no_handle(handle: str, session_id: str | None) -> HandleNotFoundError:
    what = f"There is no output '{handle}'{' in that session' * (session_id is not None)}."
    if not HANDLE.fullmatch(handle):
        what = f"'{handle}' is too short, or no handle."
    return HandleNotFoundError(
        f"{what} Handles look like out_k3f9x2abq7m4wz5d; search_history finds outputs and names theirs."
    )


def find_handles(tx: Tx, owner: str, prefix: str, limit: int) -> list[str]:
    """The handles that begin with `prefix`, in order."""
    rows = tx.rows(
        "SELECT DISTINCT handle FROM outputs JOIN sessions USING (session)"
        " WHERE owner = ? AND handle >= ? AND substr(handle, 1, ?) = ? ORDER BY handle LIMIT ?",
        (owner, prefix, len(prefix), prefix, limit),
    )
    return [handle for (handle,) in rows]


def _numbered(name: str, number: int) -> str:
    """The handle of the output that is the one of this number among those of one name."""
    return name if number == 1 else f"{name}-{number}"


def _count(tx: Tx, row: int, name: str) -> int:
    """How many outputs have this name, of which the first is there: that is the last number, as they are given in
    order."""
    text = "SELECT count(*) FROM outputs WHERE session = ? AND handle BETWEEN ? AND ?"
    return 1 + int(only(tx.rows(text, (row, f"{name}-", f"{name}-:"))))  # the colon comes behind the digits


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


def read_messages_at(tx: Tx, owner: str, session_id: str, seqs: Sequence[int]) -> list[Message]:
    """The messages at these positions, with their bodies, in order of position."""
    row = row_of(tx, owner, session_id)
    rows = tx.rows(f"{_ROWS} IN {tx.numbers} ORDER BY seq", (row, listed(set(seqs))))
    return _made(row, session_id, rows, segments_at(tx, row, [each[0] for each in rows]))


def _made(
    row: int, session_id: str, rows: Sequence[Sequence[Any]], segments: Sequence[Segment] | None
) -> list[Message]:
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
    newest = read_log(tx, row, Request, newest=True, limit=1) if counters.requests else []
    edits = read_edits(tx, row, after=known.edits) if counters.edits > known.edits else []
    span = known.span(counters)
    messages = [] if span is None else messages_between(tx, row, session, *span)
    outputs = [] if span is None else read_outputs(tx, row, first=span[0], last=span[1])
    return SessionNews(session, known, newest[0] if newest else None, tuple(edits), tuple(messages), tuple(outputs))


def message_of(session_id: str, row: Sequence[Any], stored: bytes | None) -> Message:
    """The message of a row (seq, key, facts, created, fingerprint, checksum), with its body if that was read. Raises
    DamagedError if the row is damaged."""
    seq, key, facts, created, fingerprint, noted = row
    # A flipped bit may also make a blob of the text, which has the same checksum.
    if noted != checksum(seq, fingerprint, key, created, facts) or not isinstance(facts, str):
        raise damaged(f"message {seq}")
    return Message(
        session_id=session_id,
        seq=seq,
        key=None if key is None else text_of(key),
        created_at=time_of(created),
        body=None if stored is None else body_of(stored),
        **parsed(facts_json(facts)),
    )
