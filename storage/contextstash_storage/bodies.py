"""Message bodies as bytes: JSON text with its large strings taken out, so that each is stored once."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from contextstash_storage.records import Native

LARGE_STRING = 1_024
"""Strings longer than this, in characters, are blobs."""

COMPRESSED_FROM = 512
"""Bytes from which compression is tried."""

_PLAIN = b"\x00"
_ZLIB = b"\x01"


@dataclass(frozen=True, slots=True)
class Blob:
    """A large string and where in its message's JSON it stands: keys and list positions from the top."""

    path: tuple[str | int, ...]
    sha256: bytes
    content: bytes


def fingerprint(body: Native) -> bytes:
    """What makes two messages the same: their JSON, key order included."""
    return hashlib.sha256(to_bytes(body)).digest()


def to_bytes(value: object) -> bytes:
    """Compact JSON in UTF-8; lone surrogates, which UTF-8 can't hold, are escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def packed(data: bytes) -> bytes:
    """Data behind a byte that tells how it is packed: as it is, or by zlib where that is smaller."""
    if len(data) >= COMPRESSED_FROM:
        small = zlib.compress(data, 6)
        if len(small) < len(data):
            return _ZLIB + small
    return _PLAIN + data


def unpacked(stored: bytes) -> bytes:
    """The data of `packed`."""
    return zlib.decompress(stored[1:]) if stored[:1] == _ZLIB else stored[1:]


def take_apart(body: Native) -> tuple[bytes, list[Blob]]:
    """The bytes to store for a body, and the large strings that were taken out of it."""
    blobs: list[Blob] = []
    rest = _without_large(body, (), blobs)
    return packed(to_bytes(rest)), blobs


def _without_large(value: Any, path: tuple[str | int, ...], blobs: list[Blob]) -> Any:
    if isinstance(value, str):
        if len(value) <= LARGE_STRING:
            return value
        data = value.encode("utf-8", "surrogatepass")
        blobs.append(Blob(path, hashlib.sha256(data).digest(), data))
        return None
    if isinstance(value, dict):
        return {key: _without_large(child, (*path, key), blobs) for key, child in value.items()}
    if isinstance(value, list):
        return [_without_large(child, (*path, place), blobs) for place, child in enumerate(value)]
    return value


def put_together(stored: bytes, blobs: Iterable[tuple[str, bytes]]) -> Native:
    """The body as it was recorded. `blobs` are (path as JSON, packed content)."""
    body: Native = json.loads(unpacked(stored))
    for path, content in blobs:
        *parents, last = json.loads(path)
        place: Any = body
        for step in parents:
            place = place[step]
        place[last] = unpacked(content).decode("utf-8", "surrogatepass")
    return body
