"""Compression of short JSON: deflate that knows beforehand what such JSON often contains.

Each packed value begins with a byte that names its codec. A dictionary is a part of the format: the constant one must
never change, a new one is a codec of its own.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import Any

from contextstash_storage.errors import StoreError

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


def session_dictionary(mark: int, content: bytes) -> Dictionary:
    """A dictionary of a session's own text, which is nearest: near matches take the fewest bits."""
    return Dictionary(mark, OF_SESSION, (CONSTANT.content + content)[-WINDOW:])


def unpacked(stored: bytes, dictionary: Dictionary | None = None) -> bytes:
    """The data of any packed value; one that was packed with a session's dictionary needs it. Raises StoreError if it
    is damaged."""
    codec, data = stored[:1], stored[1:]
    if codec == PLAIN:
        return data
    try:
        if codec == ZLIB:
            return zlib.decompress(data)
        if codec == _CONSTANT:
            return CONSTANT.expanded(data)
        if codec == OF_SESSION and dictionary is not None:
            return dictionary.expanded(data)
    except zlib.error as error:
        raise damaged() from error
    raise damaged()


def damaged() -> StoreError:
    """The error for a stored value that cannot be read."""
    return StoreError("The database is damaged: a message cannot be decompressed. Restore a backup.")
