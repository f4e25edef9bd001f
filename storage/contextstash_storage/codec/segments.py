"""Segments: the bodies of neighbouring messages, compressed together in one zstd frame, as they share most of their
words. The frame's checksum, and the place that is in it, tell a damaged one, or one in another's place, from what was
stored."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from contextstash_storage.errors import DamagedError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MESSAGES = 64
"""Messages of a segment. Of recorded sessions, segments of 64 take 0.61 to 0.70 of the bytes that the bodies take if
each is compressed alone, with a constant dictionary; to read one message of a segment takes 0.16 ms."""

BYTES = 256_000
"""Bytes of bodies from which a segment is full: to read one message, the whole segment is decompressed."""

_LEVEL, _CHECKSUM = zstd.CompressionParameter.compression_level, zstd.CompressionParameter.checksum_flag

_OPTIONS: dict[int, int] = {_LEVEL: 5, _CHECKSUM: 1}
"""A full segment takes 1.1 ms; with level 3 it takes 0.4 and is 3 % larger, with 12 it takes 6.7 and is 3 % smaller."""

_COMPRESSOR = zstd.ZstdCompressor(options=_OPTIONS)
"""Used for each frame anew, which takes a sixth of the time of making one for each; it locks itself."""


class Stored(NamedTuple):
    """What is stored of a message's content: the JSON of its body, and its text for the search index, if it has one, as
    references to that (see text_references.py)."""

    body: bytes
    text: bytes | None

    @property
    def size(self) -> int:
        return len(self.body) + len(self.text or b"")


class Segment(NamedTuple):
    """A segment as it is stored: the position of its first message, how many there are, and the bytes of their
    bodies."""

    first_seq: int
    messages: int
    size: int
    content: bytes

    @property
    def is_full(self) -> bool:
        return self.messages >= MESSAGES or self.size >= BYTES


def damaged(what: str = "a message") -> DamagedError:
    """The error for a stored value that is not what was stored."""
    return DamagedError(
        f"The database is damaged: {what} cannot be read. Everything else can; contextstash doctor says what is"
        " damaged. Restore a backup, or delete the session."
    )


def packed(key: Sequence[object], first_seq: int, stored: Sequence[Stored]) -> Segment:
    """The segment of these messages of a session with this key, the first of which is at `first_seq`."""
    sizes = [[len(each.body), -1 if each.text is None else len(each.text)] for each in stored]
    head = json.dumps([*key, first_seq, sizes], separators=(",", ":")).encode()
    content = b"".join([head, b"\n", *(part for each in stored for part in (each.body, each.text or b""))])
    size = sum(each.size for each in stored)
    return Segment(first_seq, len(stored), size, _COMPRESSOR.compress(content, zstd.ZstdCompressor.FLUSH_FRAME))


def grouped(key: Sequence[object], first_seq: int, stored: Sequence[Stored]) -> list[Segment]:
    """The segments of messages that follow each other: all but the last are full."""
    found: list[Segment] = []
    waiting: list[Stored] = []
    size = 0
    for each in stored:
        waiting.append(each)
        size += each.size
        if len(waiting) == MESSAGES or size >= BYTES:
            found.append(packed(key, first_seq, waiting))
            first_seq += len(waiting)
            waiting, size = [], 0
    return [*found, packed(key, first_seq, waiting)] if waiting else found


@dataclass(frozen=True, slots=True)
class _Opened:
    """The content of a segment: its place, and of each message where its body begins and ends, and its text ends (0 if
    it has none)."""

    place: list[object]
    ends: list[tuple[int, int, int]]
    plain: bytes

    def stored(self, number: int) -> Stored:
        start, end, end_of_text = self.ends[number]
        return Stored(self.plain[start:end], self.plain[end:end_of_text] if end_of_text else None)


KEPT = 16
"""Segments that stay in memory, opened: a search, and who reads message by message, come back to the same ones."""

_kept: dict[bytes, _Opened] = {}


def _opened(content: bytes) -> _Opened:
    """A segment by its stored content. Raises what reading a damaged one raises."""
    known = _kept.get(content)
    if known is not None:
        return known
    plain = zstd.decompress(content)
    *place, sizes = json.loads(plain[: plain.index(b"\n")])
    start = plain.index(b"\n") + 1
    ends = []
    for body, text in sizes:
        end = start + body
        ends.append((start, end, 0 if text < 0 else end + text))
        start = end + max(text, 0)
    found = _Opened(place, ends, plain)
    if len(plain) <= 2 * BYTES:  # not a message of many megabytes
        for other in list(_kept)[: max(0, len(_kept) + 1 - KEPT)]:
            _kept.pop(other, None)
        _kept[content] = found
    return found


def unpacked(
    key: Sequence[object], first_seq: int, messages: int, content: bytes, seqs: Iterable[int] | None = None
) -> dict[int, Stored]:
    """Of what `packed` was given the messages at these positions, or all. Raises DamagedError, which names the
    messages, if the segment is damaged."""
    try:
        opened = _opened(content)
        if opened.place != [*key, first_seq] or len(opened.ends) != messages:
            raise ValueError("another place")
    except (zstd.ZstdError, ValueError, EOFError) as error:
        last = first_seq + messages - 1
        raise damaged(f"message {first_seq}" if messages == 1 else f"messages {first_seq} to {last}") from error
    span = range(first_seq, first_seq + messages)
    return {seq: opened.stored(seq - first_seq) for seq in (span if seqs is None else seqs) if seq in span}


def bodies_in(key: Sequence[object], rows: Iterable[tuple[int, int, bytes]], seqs: Iterable[int]) -> dict[int, Stored]:
    """What is stored of the messages at these positions, given the rows (first position, messages, content) of the
    segments that they are in. Raises DamagedError if a row is missing or damaged."""
    wanted = set(seqs)
    found: dict[int, Stored] = {}
    for first_seq, messages, content in rows:
        here = wanted.intersection(range(first_seq, first_seq + max(messages, 0)))
        if here:
            found.update(unpacked(key, first_seq, messages, content, here))
    if missing := sorted(wanted.difference(found)):
        raise damaged(f"message {missing[0]}")
    return found
