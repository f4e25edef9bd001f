"""The width and height of an image in a message, read from the first bytes of its data."""

from __future__ import annotations

import base64
import binascii
import struct

HEADER_CHARACTERS = 64 * 1024 * 4 // 3
"""How much of the encoded data is looked at: a JPEG's size stands behind its thumbnail and colour profile."""

Size = tuple[int, int]


def image_size(data: object) -> Size | None:
    """Pixels across and down of an image in base64, or in a data URL; None for another URL, or data of another kind."""
    if not isinstance(data, str):
        return None
    encoded = data.split(",", 1)[-1] if data.startswith("data:") else data
    try:
        start = base64.b64decode(encoded[: HEADER_CHARACTERS // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    try:
        size = _size(start)
    except (struct.error, IndexError):
        return None
    return size if size is not None and min(size) > 0 else None


def _size(start: bytes) -> Size | None:
    if start.startswith(b"\x89PNG\r\n\x1a\n"):
        return _pair(">II", start, 16)
    if start.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", start, 6)
    if start.startswith(b"\xff\xd8"):
        return _jpeg(start)
    if start.startswith(b"RIFF") and start[8:12] == b"WEBP":
        return _webp(start)
    return None


def _pair(form: str, start: bytes, offset: int) -> Size:
    first, second = struct.unpack_from(form, start, offset)
    return int(first), int(second)


_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of frames, which hold the size; the three others in this range are tables."""


def _jpeg(start: bytes) -> Size | None:
    place = 2
    while start[place] == 0xFF:
        if start[place + 1] in _JPEG_FRAMES:
            down, across = _pair(">HH", start, place + 5)
            return across, down
        place += 2 + struct.unpack_from(">H", start, place + 2)[0]
    return None


def _webp(start: bytes) -> Size | None:
    kind = start[12:16]
    if kind == b"VP8 ":
        across, down = _pair("<HH", start, 26)
        return across & 0x3FFF, down & 0x3FFF
    if kind == b"VP8L":
        [packed] = struct.unpack_from("<I", start, 21)
        return (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1
    if kind == b"VP8X":
        across, down = (int.from_bytes(start[place : place + 3], "little") + 1 for place in (24, 27))
        return across, down
    return None
