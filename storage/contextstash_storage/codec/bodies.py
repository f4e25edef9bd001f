"""Message bodies as bytes: JSON text with its large strings taken out, so that each is stored once."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any, Protocol

from contextstash_storage.errors import StoreError
from contextstash_storage.records import Native

PLAIN = b"\x00"
ZLIB = b"\x01"
_CONSTANT = b"\x02"
OF_SESSION = b"\x03"

LEVEL = 6
MEMORY = 8
"""zlib's default: the state of a compressor has 0.27 MB, which is copied for each message."""

WINDOW = 32_768
"""How much deflate looks back, in bytes."""

MIN_BYTES = 24
"""Shorter data is not compressed: it would hardly become smaller."""


class Source(Protocol):
    """What stored values of its codec are read with: the dictionary of their session, or the pack that they are in."""

    @property
    def codec(self) -> bytes: ...

    def expanded(self, small: bytes) -> bytes:
        """The data of a stored value without the byte of its codec. Raises zlib.error if it is damaged or cut off."""


@dataclass(frozen=True)
class Dictionary:
    """What deflate knows beforehand. `mark` tells the dictionaries of sessions apart, the constant one has 0."""

    mark: int
    codec: bytes
    content: bytes

    def packed(self, data: bytes) -> bytes:
        """The data after the byte of its codec; as it is if compressing does not make it smaller."""
        if len(data) >= MIN_BYTES:
            compressor = self._prepared.copy()
            small: bytes = compressor.compress(data) + compressor.flush()
            if len(small) < len(data):
                return self.codec + small
        return PLAIN + data

    def expanded(self, small: bytes) -> bytes:
        """The data that `packed` compressed. Raises zlib.error if it is damaged or cut off."""
        reader = zlib.decompressobj(-zlib.MAX_WBITS, self.content)
        data = reader.decompress(small)
        if not reader.eof:
            raise zlib.error("cut off")
        return data

    @cached_property
    def _prepared(self) -> Any:
        """A compressor that has read the content, which takes 50 µs; it is copied for each use. Without zlib's header
        and checksum, which are 10 bytes."""
        return zlib.compressobj(LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, MEMORY, zlib.Z_DEFAULT_STRATEGY, self.content)


CONSTANT = Dictionary(0, _CONSTANT, files("contextstash_storage.codec").joinpath("dictionary_1.txt").read_bytes())
"""Field names of all message formats, and common words of programs and of English."""


def checksum(content: bytes) -> int:
    """The mark of what other values are read with, below 0: if it were damaged, they would be read as other words."""
    return -1 - (int.from_bytes(hashlib.sha256(content).digest()[:8], "big") >> 1)


def session_dictionary(mark: int, content: bytes) -> Dictionary:
    """A dictionary of a session's own text, which is nearest: near matches take the fewest bits."""
    return Dictionary(mark, OF_SESSION, (CONSTANT.content + content)[-WINDOW:])


def unpacked(stored: bytes, source: Source | None = None) -> bytes:
    """The data of any packed value; one that was packed with a session's dictionary, or together with others, needs
    it. Raises StoreError if it is damaged."""
    codec, data = stored[:1], stored[1:]
    if codec == PLAIN:
        return data
    try:
        if codec == ZLIB:
            return zlib.decompress(data)
        if codec == _CONSTANT:
            return CONSTANT.expanded(data)
        if source is not None and codec == source.codec:
            return source.expanded(data)
    except zlib.error as error:
        raise damaged() from error
    raise damaged()


def damaged() -> StoreError:
    """The error for a stored value that cannot be read."""
    return StoreError("The database is damaged: a message cannot be decompressed. Restore a backup.")


LARGE_STRING = 8_000
"""Strings longer than this, in characters, are blobs. A shorter one, compressed, does not fill a page of 4 KB; within
its message it is also compressed better. Of 1,024, 4,096 and 8,000: with 8,000 the recorded sessions take 5 to 20 %
less than with 1,024."""

_JSON = json.JSONDecoder()
"""Decodes what this program wrote: without looking for the encoding and for white space it takes 60 % of the time."""

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Blob:
    """A large string and its path in the message's JSON: keys and list positions from the top."""

    path: Path
    text: str
    sha256: bytes


@dataclass(frozen=True, slots=True)
class Parts:
    """A body without its large strings: its JSON that remains, and these strings in order."""

    rest: bytes
    blobs: tuple[Blob, ...]


CACHE_MARK = "cache_control"
"""The field that makes Anthropic's API write its prompt cache up to this block. Programs move it to the newest
message of each request, so it is not part of the message's identity."""


def fingerprint(body: Native, json_text: bytes | None = None) -> bytes:
    """What makes two messages the same: their JSON, key order included, cache marks of content blocks left out.
    `json_text` is `to_bytes(body)`, if the caller has it."""
    data = to_bytes(body) if json_text is None else json_text
    if CACHE_MARK.encode() in data:
        data = to_bytes(_without_cache_marks(body))
    return hashlib.sha256(data).digest()


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


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def packed_text(text: str) -> bytes:
    """Any text, lone surrogates and NULs included, packed."""
    return CONSTANT.packed(text_bytes(text))


def text_bytes(text: str) -> bytes:
    """Any text as bytes, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def unpacked_text(stored: bytes) -> str:
    """The text of `packed_text`."""
    return unpacked(stored).decode("utf-8", "surrogatepass")


def take_apart(body: Native) -> Parts:
    """What to store for a body, which is JSON (see json_values.py)."""
    blobs: list[Blob] = []
    rest = _without_large(body, (), blobs)
    return Parts(to_bytes(rest), tuple(blobs))


def _without_large(value: Any, path: Path, blobs: list[Blob]) -> Any:
    if isinstance(value, str):
        if len(value) <= LARGE_STRING:
            return value
        digest = hashlib.sha256(text_bytes(value)).digest()
        blobs.append(Blob(path, value, digest))
        return None
    if isinstance(value, dict):
        return {key: _without_large(child, (*path, key), blobs) for key, child in value.items()}
    if isinstance(value, list):
        return [_without_large(child, (*path, place), blobs) for place, child in enumerate(value)]
    return value


def put_together(stored: bytes, blobs: Iterable[tuple[str, bytes]], source: Source | None = None) -> Native:
    """The body as it was recorded. `blobs` are (path as JSON, packed content). Raises StoreError if it is damaged."""
    try:
        body: Native = _JSON.raw_decode(unpacked(stored, source).decode())[0]
    except ValueError as error:  # decompressed with a damaged dictionary
        raise damaged() from error
    for path, content in blobs:
        *parents, last = json.loads(path)
        place: Any = body
        for step in parents:
            place = place[step]
        place[last] = unpacked_text(content)
    return body


def unfolded(stored: bytes, blobs: Sequence[bytes]) -> str:
    """A text as former versions stored it: with the numbers of its message's large strings in place of these, whose
    packed contents are `blobs`."""
    pieces: list[str | int] = json.loads(unpacked(stored))
    return "".join(unpacked_text(blobs[piece]) if isinstance(piece, int) else piece for piece in pieces)
