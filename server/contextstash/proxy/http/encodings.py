"""Compressed bodies of requests and responses: which encodings the proxy can read, and how far it reads them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from typing import Any

from contextstash.base.zstandard import zstandard
from contextstash.proxy.headers import RawHeaders

MAX_DECODED_BYTES = 4 << 20
"""What one chunk, of 64 KB, may hold decoded. Text is compressed to a tenth, zeros to a thousandth: a megabyte of those
would take a gigabyte of memory."""

DECODABLE = frozenset({"gzip", "x-gzip", "deflate", "zstd", "identity"})
"""The encodings that are read. Not Brotli: every API that offers it offers gzip too, and it would be a package more."""

ZSTD_LEVEL = 1
"""How hard an edited body is compressed: 2 MB take about 5 ms at level 1, and the client waits for it."""

Decode = Callable[[bytes], bytes]


def decodable_only(headers: RawHeaders) -> RawHeaders:
    """The headers of a request, which ask for no response in an encoding that cannot be read."""
    return [(name, _offered(value) if name.lower() == b"accept-encoding" else value) for name, value in headers]


def _offered(value: bytes) -> bytes:
    kept = [part for part in value.split(b",") if part.split(b";")[0].strip().lower().decode("latin-1") in DECODABLE]
    return b",".join(kept).strip() or b"identity"


def decoder(encoding: str | None) -> Decode:
    """A function that decodes the next bytes of a compressed body. It raises an error for bytes that it cannot decode,
    or that hold more than MAX_DECODED_BYTES; for an encoding that is not known it always does."""
    name = (encoding or "identity").strip().lower() or "identity"
    decompressor = _decompressor(name) if name in DECODABLE - {"identity"} else None

    def decode(data: bytes) -> bytes:
        if decompressor is None:
            raise ValueError("unknown encoding")
        found: bytes = decompressor.decompress(data, MAX_DECODED_BYTES)
        # zlib and Zstandard say in two ways that they hold back decoded bytes.
        is_zlib = hasattr(decompressor, "unconsumed_tail")
        if decompressor.unconsumed_tail if is_zlib else not (decompressor.needs_input or decompressor.eof):
            raise ValueError("too long")
        return found

    return decode if name != "identity" else bytes


def _decompressor(name: str) -> Any:
    if name == "zstd":
        return zstandard().ZstdDecompressor()
    return zlib.decompressobj(zlib.MAX_WBITS | 32 if name != "deflate" else zlib.MAX_WBITS)


def readable_error(data: bytes, encoding: str | None) -> bytes | None:
    """The body of a refusal without its compression; None if it cannot be read, so that it says nothing."""
    try:
        found = decoder(encoding)(data)
        return found if isinstance(json.loads(found), dict) else None
    except Exception:  # each library has its own errors, and a body from elsewhere may hold anything
        return None


def unpacked(data: bytes, encoding: str, most: int) -> bytes | None:
    """A request's whole body without its compression; None if it cannot be read, or has more than `most` bytes."""
    name = encoding.strip().lower()
    if name not in DECODABLE - {"identity"}:
        return None
    try:
        decompressor = _decompressor(name)
        found: bytes = decompressor.decompress(data, most)
    except Exception:
        return None
    return found if decompressor.eof and not decompressor.unused_data else None


def packed(data: bytes, encoding: str) -> bytes:
    """An edited body in the encoding of the original one."""
    name = encoding.strip().lower()
    if name == "zstd":
        found: bytes = zstandard().compress(data, ZSTD_LEVEL)
        return found
    bits = zlib.MAX_WBITS if name == "deflate" else zlib.MAX_WBITS | 16
    compressor = zlib.compressobj(1, zlib.DEFLATED, bits)
    return compressor.compress(data) + compressor.flush()
