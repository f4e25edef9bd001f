"""Messages: the segments that they are in, and their tool outputs.

A segment is neighbouring messages, which share most of their words: what is derived from them is one zstd frame, and
their contents are another, so that a view is read without these. Each frame has a line for each message. The frame's
checksum, and the place that is in it, tell a damaged one, or one in another's place, from what was stored.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from contextstash_storage import records
from contextstash_storage.errors import DamagedError, HandleNotFoundError
from contextstash_storage.log import read_edits, read_log
from contextstash_storage.sessions import read_session
from contextstash_storage.transaction import MAX_INTEGER, Tx, listed, microseconds, name_hash, only, storable, time_of

CACHE_MARK = "cache_control"
"""The field that makes Anthropic's API write its prompt cache up to this block. Programs move it to the newest
message of each request, so it is not part of the message's identity."""

FINGERPRINT_BYTES = 16
"""Of the 32 of a SHA-256. Two different messages have the same 16 with a chance of 1 in 10^20 among 10^9."""


def fingerprint(body: records.Native, json_text: bytes | None = None) -> bytes:
    """What makes two messages the same, in letters and digits: their JSON, key order included, cache marks of content
    blocks left out. `json_text` is `to_bytes(body)`, if the caller has it."""
    data = records.to_bytes(body) if json_text is None else json_text
    if CACHE_MARK.encode() in data:
        data = records.to_bytes(_without_cache_marks(body))
    return b64encode(hashlib.sha256(data).digest()[:FINGERPRINT_BYTES]).rstrip(b"=")


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
read one message of a segment takes 0.1 ms. With 128 an import is 2 % smaller, but a session that grows is not."""

BYTES = 512_000
"""Bytes from which a segment is full: to read one message, the whole segment is decompressed."""

Line = tuple[bytes, bytes]
"""What is stored of a message: of what is derived from it (the JSON of its time, its fingerprint, its key and its
facts), and of its content."""


def packed(row: int, first_seq: int, lines: Sequence[bytes]) -> bytes:
    """A frame of these lines, before which its place stands: the session's row, and the first position."""
    return records.compressed(b"\n".join([b"%d %d" % (row, first_seq), *lines]))


@lru_cache(maxsize=32)
def _lines(frame: bytes) -> list[bytes]:
    """The lines of a frame. The newest stay in memory: a search, and who reads message by message, come back to the
    same ones. Raises what reading a damaged one raises."""
    return records.zstd.decompress(frame).split(b"\n")


def unpacked(row: int, first_seq: int, messages: int, frame: bytes) -> list[bytes]:
    """The lines of a frame. Raises DamagedError, which names the positions of its messages, if it is damaged."""
    try:
        # One of many megabytes does not stay in memory.
        place, *lines = (_lines if len(frame) < BYTES else _lines.__wrapped__)(frame)
        if place != b"%d %d" % (row, first_seq) or len(lines) != messages:
            raise ValueError("another place")
    except (records.zstd.ZstdError, ValueError, EOFError, TypeError) as error:
        last = first_seq + messages - 1
        raise records.damaged(f"message {first_seq}" if messages == 1 else f"messages {first_seq} to {last}") from error
    return lines


def store_lines(tx: Tx, row: int, first_seq: int, lines: Sequence[Line]) -> None:
    """Store new messages from this position on. A few messages are a small segment, until there are as many as a full
    one has: then these are joined."""
    _insert(tx, row, first_seq, lines)
    start = first_seq - first_seq % MESSAGES
    if start < first_seq and start + MESSAGES <= first_seq + len(lines):
        seqs = range(start, start + MESSAGES)
        with suppress(DamagedError):  # they stay as they are, and recording goes on
            facts, contents = (read_lines(tx, row, column, seqs) for column in ("facts", "contents"))
            text = "DELETE FROM segments WHERE session = ? AND first_seq BETWEEN ? AND ?"
            tx.execute(text, (row, seqs[0], seqs[-1]))
            _insert(tx, row, start, [(facts[seq], contents[seq]) for seq in seqs])


def _insert(tx: Tx, row: int, first_seq: int, lines: Sequence[Line]) -> None:
    rows = []
    start = size = 0
    for place, line in enumerate(lines, start=1):
        size += len(line[1])
        if (first_seq + place) % MESSAGES == 0 or size >= BYTES or place == len(lines):
            frames = (packed(row, first_seq + start, column) for column in zip(*lines[start:place], strict=True))
            rows.append((row, first_seq + start, place - start, *frames))
            start, size = place, 0
    tx.many("INSERT INTO segments (session, first_seq, messages, facts, contents) VALUES (?, ?, ?, ?, ?)", rows)


def read_lines(tx: Tx, row: int, column: str, seqs: Collection[int]) -> dict[int, bytes]:
    """What is stored of the messages at these positions, in order. Raises DamagedError, also if one is missing."""
    found = dict(readable_lines(tx, row, column, seqs, is_strict=True))
    if missing := sorted(set(seqs).difference(found)):
        raise records.damaged(f"message {missing[0]}")
    return found


def readable_lines(
    tx: Tx, row: int, column: str, seqs: Collection[int], *, is_strict: bool = False, newest: bool = False
) -> Iterator[tuple[int, bytes]]:
    """The same of those that can be read, or the newest first; raises DamagedError for a damaged segment if
    `is_strict`. Each segment is decompressed when its turn comes: that takes 20 µs or more."""
    wanted = seqs if isinstance(seqs, range) else set(seqs)
    runs: list[list[int]] = []
    for number in sorted({seq // MESSAGES for seq in wanted}):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    for first, last in reversed(runs) if newest else runs:
        text = f"SELECT first_seq, messages, {column} FROM segments WHERE session = ? AND first_seq BETWEEN ? AND ?"
        order = f" ORDER BY first_seq {'DESC' if newest else ''}"
        for first_seq, messages, frame in tx.rows(
            text + order, (row, first * MESSAGES, last * MESSAGES + MESSAGES - 1)
        ):
            # The place of one may be damaged: what it holds is missing then.
            is_place = isinstance(first_seq, int) and isinstance(messages, int) and 0 < messages <= MESSAGES
            found = [seq for seq in range(first_seq, first_seq + messages) if seq in wanted] if is_place else []
            if not found:
                continue
            try:
                lines = unpacked(row, first_seq, messages, frame)
            except DamagedError:
                if is_strict:
                    raise
                continue
            # The others are not kept: the wanted may be scattered.
            yield from [(seq, lines[seq - first_seq]) for seq in (reversed(found) if newest else found)]


_NAMES = ("handle", "seq", "block", "tool", "argument", "tokens", "characters", "lines", "sha256", "is_error")
_COLUMNS = ", ".join((*_NAMES, "outputs.checksum"))


def store_outputs(tx: Tx, row: int, outputs: Sequence[records.Output]) -> None:
    """Store outputs at their positions, each under its handle, or under the next free one of that name: outputs with
    the same text are numbered in order."""
    wanted = {output.handle for output in outputs}
    found = f"SELECT handle FROM outputs WHERE session = ? AND handle IN {tx.texts}"
    # The colon comes behind the digits.
    text = "SELECT count(*) FROM outputs WHERE session = ? AND handle BETWEEN ? AND ?"
    numbers = {
        name: 1 + int(only(tx.rows(text, (row, f"{name}-", f"{name}-:"))))
        for (name,) in (tx.rows(found, (row, listed(wanted))) if wanted else [])
    }
    rows = []
    for each in outputs:
        number = numbers[each.handle] = numbers.get(each.handle, 0) + 1
        handle = each.handle if number == 1 else f"{each.handle}-{number}"
        sizes = (each.tokens, each.characters, each.lines, bytes.fromhex(each.sha256), int(each.is_error))
        values = (handle, each.seq, each.block, storable(each.tool), storable(each.argument), *sizes)
        rows.append((row, *values, records.checksum(*values)))
    text = f"INSERT INTO outputs (session, {', '.join(_NAMES)}, checksum)"
    tx.many(f"{text} VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


def _output(row: Sequence[Any]) -> records.Output:
    """The output of a row of _COLUMNS. Raises DamagedError if it is damaged."""
    *values, noted = row
    fields = dict(zip(_NAMES, values, strict=True))
    try:
        if noted != records.checksum(*values):
            raise ValueError("another checksum")
        return records.Output(**{**fields, "sha256": fields["sha256"].hex(), "is_error": bool(fields["is_error"])})
    except (TypeError, ValueError, AttributeError) as error:
        raise records.damaged(f"output {fields['handle']}") from error


def read_outputs(tx: Tx, row: int, *, first: int = 0, last: int | None = None) -> list[records.Output]:
    """The tool outputs of messages `first..last` of a session, both included, in order."""
    text = f"SELECT {_COLUMNS} FROM outputs WHERE session = ? AND seq BETWEEN ? AND ? ORDER BY seq, block"
    return [_output(each) for each in tx.rows(text, (row, first, MAX_INTEGER if last is None else last))]


def find_output(tx: Tx, owner: str, handle: str, session_id: str | None = None) -> tuple[str, records.Output]:
    """The session and output of a handle, the newest session's if several hold it. Raises HandleNotFoundError."""
    condition, values = ("", ()) if session_id is None else (" AND session_id = ?", (session_id,))
    rows = tx.rows(
        f"SELECT session_id, {_COLUMNS} FROM outputs JOIN sessions USING (session) WHERE owner = ? AND handle = ?"
        f"{condition} ORDER BY updated_at DESC LIMIT 1",
        (owner, storable(handle), *values),
    )
    if not rows:
        what = f"There is no output '{handle}'{' in that session' * (session_id is not None)}."
        if not records.HANDLE.fullmatch(handle):
            what = f"'{handle}' is too short, or no handle."
        raise HandleNotFoundError(
            f"{what} Handles look like out_k3f9x2abq7m4wz5d; search_history finds outputs and names theirs."
        )
    return rows[0][0], _output(rows[0][1:])


def find_handles(tx: Tx, owner: str, prefix: str, limit: int) -> list[str]:
    """The handles that begin with `prefix`, in order."""
    rows = tx.rows(
        "SELECT DISTINCT handle FROM outputs JOIN sessions USING (session)"
        " WHERE owner = ? AND handle >= ? AND substr(handle, 1, ?) = ? ORDER BY handle LIMIT ?",
        (owner, prefix, len(prefix), prefix, limit),
    )
    return [handle for (handle,) in rows]


def key_hash(key: str) -> int:
    """The number of 63 bits by which a message's key is found: among a million keys of a session two have the same with
    a chance of 1 in 10^7."""
    return int(name_hash(key)[:16], 16) >> 1


def find_key(tx: Tx, row: int, name: str) -> int | None:
    """The position of the message that has this key; None if there is none."""
    seq: int | None = only(tx.rows("SELECT seq FROM keys WHERE session = ? AND hash = ?", (row, key_hash(name))))
    return seq


_GIVEN: set[str] = set()
"""In the place of each record's own set of the fields that it was given, which nothing reads: of what is in memory of
thousands of messages, a third of the objects among which Python looks for garbage, while everything else waits."""


def line_of(message: records.Message, facts: str, fingerprint: bytes) -> bytes:
    """What is stored of what is derived from a message, of which the `facts` are JSON already."""
    key = b"null" if message.key is None else records.to_bytes(message.key)
    return b'[%d,"%s",%s,%s]' % (microseconds(message.created_at), fingerprint, key, facts.encode())


def message_of(session_id: str, seq: int, line: bytes, content: bytes | None = None) -> records.Message:
    """The message of these lines, with its body if its content was read."""
    created, _, key, facts = records.parsed(line)
    body = None if content is None else records.body_of(content)
    values = {"session_id": session_id, "seq": seq, "key": key, "created_at": time_of(created), "body": body}
    made = records.Message.model_validate({**values, **facts})
    for each in (made, *made.blocks):
        object.__setattr__(each, "__pydantic_fields_set__", _GIVEN)
    return made


def read_messages(
    tx: Tx,
    owner: str,
    session_id: str,
    *,
    first: int = 0,
    last: int | None = None,
    at: Sequence[int] | None = None,
    bodies: bool = True,
) -> list[records.Message]:
    """Messages `first..last`, both included, or those `at` some positions, in order. Raises DamagedError if one is
    missing or damaged."""
    seqs = range(max(first, 0), MAX_INTEGER if last is None else last + 1) if at is None else at
    return messages_at(tx, *read_session(tx, owner, session_id), seqs, bodies=bodies)


def messages_at(
    tx: Tx, row: int, session: records.Session, seqs: Sequence[int], *, bodies: bool = True
) -> list[records.Message]:
    """The same for a session that is read already."""
    name, count = session.session_id, session.counters.messages
    there = range(seqs.start, min(seqs.stop, count)) if isinstance(seqs, range) else {s for s in seqs if 0 <= s < count}
    try:
        facts = read_lines(tx, row, "facts", there)
        contents = read_lines(tx, row, "contents", there) if bodies else {}
    except DamagedError as error:
        raise DamagedError(f"Session '{name}': {error}") from error
    return [message_of(name, seq, line, contents.get(seq)) for seq, line in facts.items()]


def read_bodies(tx: Tx, row: int, seqs: Collection[int]) -> dict[int, records.Native]:
    """The bodies of the messages at these positions. Raises DamagedError."""
    return {seq: records.body_of(content) for seq, content in read_lines(tx, row, "contents", seqs).items()}


def messages_before(
    tx: Tx, row: int, session_id: str, seq: int, count: int, *, naming: Collection[str] = ("",)
) -> Iterator[records.Message]:
    """Of the `count` messages before a position those that can be read, and name one of these calls, the newest first,
    without their bodies."""
    names = [records.to_bytes(name)[1:-1] for name in naming]  # most messages need not be parsed for that
    lines = readable_lines(tx, row, "facts", range(max(0, seq - count), seq), newest=True)
    return (message_of(session_id, place, line) for place, line in lines if any(name in line for name in names))


def read_fingerprints(tx: Tx, owner: str, session_id: str) -> list[bytes]:
    """The fingerprint of each message."""
    row, session = read_session(tx, owner, session_id)
    return fingerprints_at(tx, row, range(session.counters.messages))


def fingerprints_at(tx: Tx, row: int, seqs: range) -> list[bytes]:
    """The fingerprints of the messages at these positions."""
    return [line.split(b'"', 2)[1] for line in read_lines(tx, row, "facts", seqs).values()]


def read_news(tx: Tx, owner: str, session_id: str, known: records.KnownPart) -> records.SessionNews:
    """A session, its newest request, and beyond what the reader knows of it its edits and its messages with their
    outputs: what each turn of an agent loop needs, as of one moment. Raises SessionNotFoundError."""
    row, session = read_session(tx, owner, session_id)
    counters = session.counters
    newest = read_log(tx, row, records.Request, newest=True, limit=1) if counters.requests else []
    edits = read_edits(tx, row, session, after=known.edits) if counters.edits > known.edits else []
    first, last = counters.messages if known.first is None else known.first, counters.messages - 1
    last = first if last - first > known.most else last
    messages = messages_at(tx, row, session, range(first, last + 1))
    outputs = read_outputs(tx, row, first=first, last=last) if messages else []
    return records.SessionNews(
        session, known, newest[0] if newest else None, tuple(edits), tuple(messages), tuple(outputs)
    )
