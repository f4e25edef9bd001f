"""Message bodies: their bytes, what makes two of them the same, and the segments that they are stored in.

A segment is the bodies of neighbouring messages, compressed together in one zstd frame, as they share most of their
words. The frame's checksum, and the place that is in it, tell a damaged one, or one in another's place, from what was
stored.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from contextstash_storage.errors import DamagedError
from contextstash_storage.records import Native
from contextstash_storage.transaction import Tx

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_JSON = json.JSONDecoder()
"""Decodes what this program wrote: without looking for the encoding and for white space it takes 60 % of the time."""

CACHE_MARK = "cache_control"
"""The field that makes Anthropic's API write its prompt cache up to this block. Programs move it to the newest
message of each request, so it is not part of the message's identity."""

FINGERPRINT_BYTES = 16
"""Of the 32 of a SHA-256. Two different messages have the same 16 with a chance of 1 in 10^20 among 10^9."""


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def body_of(stored: bytes) -> Native:
    """The body of `to_bytes`."""
    body: Native = _JSON.raw_decode(stored.decode())[0]
    return body


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
"""Messages of a segment. Of recorded sessions, segments of 64 take 0.61 to 0.70 of the bytes that the bodies take if
each is compressed alone, with a constant dictionary; to read one message of a segment takes 0.16 ms. With 128, and with
level 9, an import is 2 % smaller, but a session that grows is not, and a search takes 1.14 times as long."""

BYTES = 256_000
"""Bytes of bodies from which a segment is full: to read one message, the whole segment is decompressed."""

_LEVEL, _CHECKSUM = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.checksum_flag

_COMPRESSOR = zstd.ZstdCompressor(options={_LEVEL: 8, _CHECKSUM: 1})
"""A full segment takes 0.7 ms; with level 5 it takes 0.4 and is 4 % larger, with 12 it takes 2.9 and is 1 % smaller.
Used for each frame again, which takes a sixth of the time of making one for each; it locks itself."""

_FRAME = b"\x28\xb5\x2f\xfd"
"""How a frame begins; no JSON does."""


def compressed(data: bytes) -> bytes:
    """The data as one frame with a checksum."""
    return _COMPRESSOR.compress(data, zstd.ZstdCompressor.FLUSH_FRAME)


def plain(stored: bytes) -> bytes:
    """The JSON of `compressed`, or JSON that is not compressed."""
    return zstd.decompress(stored) if stored.startswith(_FRAME) else stored


class Stored(NamedTuple):
    """What is stored of a message's content: the JSON of its body, and what search finds in it (see
    search/documents.py), if there is something."""

    body: bytes
    texts: bytes | None = None

    @property
    def size(self) -> int:
        return len(self.body) + len(self.texts or b"")


Row = tuple[int, int, bytes]
"""Of a segment: the position of its first message, how many it has, and its content."""


def damaged(what: str) -> DamagedError:
    """The error for a stored value that is not what was stored."""
    return DamagedError(
        f"The database is damaged: {what} cannot be read. Everything else can; contextstash doctor says what is"
        " damaged. Restore a backup, or delete the session."
    )


def packed(session: int, first_seq: int, stored: Sequence[Stored]) -> tuple[object, ...]:
    """The row of a segment (session, first position, messages, whether it is full, content)."""
    sizes = [[len(each.body), -1 if each.texts is None else len(each.texts)] for each in stored]
    head = json.dumps([session, first_seq, sizes], separators=(",", ":")).encode()
    content = b"".join([head, b"\n", *(part for each in stored for part in (each.body, each.texts or b""))])
    is_full = len(stored) >= MESSAGES or sum(each.size for each in stored) >= BYTES
    return session, first_seq, len(stored), int(is_full), compressed(content)


def _grouped(session: int, first_seq: int, stored: Sequence[Stored]) -> list[tuple[object, ...]]:
    """The rows of segments of messages that follow each other: all but the last are full."""
    found = []
    start = size = 0
    for place, each in enumerate(stored, start=1):
        size += each.size
        if place - start == MESSAGES or size >= BYTES or place == len(stored):
            found.append(packed(session, first_seq + start, stored[start:place]))
            start, size = place, 0
    return found


@dataclass(frozen=True, slots=True)
class _Opened:
    """The content of a segment: its place, and of each message where its body begins and ends, and its texts end (0 if
    it has none)."""

    place: list[object]
    ends: list[tuple[int, int, int]]
    plain: bytes

    def stored(self, number: int) -> Stored:
        start, end, end_of_texts = self.ends[number]
        return Stored(self.plain[start:end], self.plain[end:end_of_texts] if end_of_texts else None)


KEPT = 16
"""Segments that stay in memory, opened: a search, and who reads message by message, come back to the same ones."""

_kept: dict[bytes, _Opened] = {}


def _opened(content: bytes) -> _Opened:
    """A segment by its stored content. Raises what reading a damaged one raises."""
    known = _kept.get(content)
    if known is not None:
        return known
    plain = zstd.decompress(content)
    start = plain.index(b"\n") + 1
    *place, sizes = json.loads(plain[:start])
    ends = []
    for body, texts in sizes:
        end = start + body
        ends.append((start, end, 0 if texts < 0 else end + texts))
        start = end + max(texts, 0)
    found = _Opened(place, ends, plain)
    if len(plain) <= 2 * BYTES:  # not a message of many megabytes
        for other in list(_kept)[: max(0, len(_kept) + 1 - KEPT)]:
            _kept.pop(other, None)
        _kept[content] = found
    return found


def unpacked(session: int, row: Row, seqs: Iterable[int] | None = None) -> dict[int, Stored]:
    """What a segment holds of the messages at these positions, or of all. Raises DamagedError, which names the
    messages, if it is damaged."""
    first_seq, messages, content = row
    try:
        opened = _opened(content)
        if opened.place != [session, first_seq] or len(opened.ends) != messages:
            raise ValueError("another place")
    except (zstd.ZstdError, ValueError, EOFError, TypeError) as error:
        last = first_seq + messages - 1
        raise damaged(f"message {first_seq}" if messages == 1 else f"messages {first_seq} to {last}") from error
    span = range(first_seq, first_seq + messages)
    return {seq: opened.stored(seq - first_seq) for seq in (span if seqs is None else seqs) if seq in span}


def bodies_in(session: int, rows: Iterable[Row], seqs: Iterable[int]) -> dict[int, Stored]:
    """What is stored of the messages at these positions, given the segments that they are in. Raises DamagedError if a
    segment is missing or damaged."""
    wanted = set(seqs)
    found: dict[int, Stored] = {}
    for row in rows:
        if not isinstance(row[0], int) or not isinstance(row[1], int):
            continue  # the row is damaged, and what it holds is missing
        here = wanted.intersection(range(row[0], row[0] + max(row[1], 0)))
        if here:
            found.update(unpacked(session, row, here))
    if missing := sorted(wanted.difference(found)):
        raise damaged(f"message {missing[0]}")
    return found


def store_bodies(tx: Tx, session: int, first_seq: int, stored: Sequence[Stored]) -> None:
    """Store the content of new messages from this position on. Those of a few messages are a small segment, until there
    are as many as a full one has."""
    if not stored:
        return
    _insert(tx, _grouped(session, first_seq, stored))
    before, after = first_seq // MESSAGES, (first_seq + len(stored)) // MESSAGES
    if before != after:
        _join(tx, session, after * MESSAGES)


def _insert(tx: Tx, rows: Sequence[tuple[object, ...]]) -> None:
    """Store rows of `packed`."""
    tx.many("INSERT INTO bodies (session, first_seq, messages, is_full, content) VALUES (?, ?, ?, ?, ?)", rows)


def _join(tx: Tx, session: int, end: int) -> None:
    """Join the small segments before a position to full ones."""
    rows = tx.rows(
        "SELECT first_seq, messages, content FROM bodies WHERE session = ? AND is_full = 0"
        " AND first_seq + messages <= ? ORDER BY first_seq",
        (session, end),
    )
    for _, run in groupby(_runs(rows), key=lambda each: each[0]):
        small = [row for _, row in run]
        try:
            joined = _grouped(session, small[0][0], [one for row in small for one in unpacked(session, row).values()])
        except DamagedError:  # it stays as it is, and recording goes on
            continue
        if any(is_full for _, _, _, is_full, _ in joined):
            tx.many(
                "DELETE FROM bodies WHERE session = ? AND first_seq = ?", [(session, first) for first, _, _ in small]
            )
            _insert(tx, joined)


def _runs(rows: Sequence[Any]) -> list[tuple[int, Row]]:
    """Each row after the number of its run: rows of one run follow each other."""
    found = []
    run = 0
    following: int | None = None
    for first_seq, messages, content in rows:
        run += following is not None and first_seq != following
        following = first_seq + messages
        found.append((run, (first_seq, messages, content)))
    return found


def segments_between(tx: Tx, session: int, first: int, last: int) -> list[Row]:
    """The segments that hold the messages `first` to `last`."""
    # The one that the span begins in is the last one that begins before it.
    return tx.rows(
        "SELECT first_seq, messages, content FROM bodies WHERE session = ? AND first_seq <= ? AND first_seq >="
        " coalesce((SELECT first_seq FROM bodies WHERE session = ? AND first_seq <= ?"
        " ORDER BY first_seq DESC LIMIT 1), 0) ORDER BY first_seq",
        (session, last, session, first),
    )


def segments_at(tx: Tx, session: int, seqs: Iterable[int]) -> list[Row]:
    """The segments that hold the messages at these positions."""
    runs: list[tuple[int, int]] = []
    for seq in sorted(set(seqs)):
        if runs and seq <= runs[-1][1] + MESSAGES:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    found = {row[0]: row for first, last in runs for row in segments_between(tx, session, first, last)}
    return [found[first] for first in sorted(found)]


def readable(tx: Tx, session: int, seqs: Sequence[int]) -> dict[int, Stored]:
    """What is stored of the messages at these positions that can be read."""
    found: dict[int, Stored] = {}
    wanted = set(seqs)
    for row in segments_at(tx, session, seqs):
        with suppress(DamagedError):
            found.update(unpacked(session, row, wanted))
    return found
