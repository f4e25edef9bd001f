"""Lines of JSON-RPC as bytes: split from a stream up to a limit, with the request id found without parsing."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import anyio

END_BYTES = 512
"""Bytes kept of each end of a line over the limit: the id of a response is in one of them."""

MAX_SKIPPED_BYTES = 1024 * 1024 * 1024
"""Bytes after which the connection is closed if a line has not ended; it is opened again for the next call."""

_ID = rb'(-?\d{1,18}|"[^"\\]{1,200}")'
_VERSION = rb'"jsonrpc"\s*:\s*"2\.0"'
_BEGIN = re.compile(
    rb'\s*\{\s*(?:%b\s*,\s*)?(?:"id"\s*:\s*%b\s*,\s*)?(?:%b\s*,\s*)?"(?:result|error)"\s*:' % (_VERSION, _ID, _VERSION)
)
_END = re.compile(rb'[\]}]\s*,\s*(?:%b\s*,\s*)?"id"\s*:\s*%b\s*(?:,\s*%b\s*)?\}\s*$' % (_VERSION, _ID, _VERSION))
"""Libraries write the id first or after the result. A key directly before the last brace belongs to the outermost
object, so an id there is that of the response and not part of the result."""


@dataclass(frozen=True, slots=True)
class Overlong:
    """A line over the limit, of which only the beginning and the end were kept."""

    begin: bytes
    end: bytes
    size: int


class EndlessLineError(Exception):
    """A server writes a line that does not end."""


async def lines_of(stream: Any, limit: int) -> AsyncIterator[bytes | Overlong]:
    """The lines of a stream of bytes. A line of more than `limit` bytes is not kept in memory. Raises EndlessLineError
    if such a line is not a JSON object, or does not end within MAX_SKIPPED_BYTES."""
    line, skipped = bytearray(), 0
    begin = b""
    while True:
        try:
            chunk: bytes = await stream.receive()
        except anyio.EndOfStream:
            return
        *complete, rest = chunk.split(b"\n")
        for part in complete:
            if skipped:
                yield Overlong(begin, bytes((line + part)[-END_BYTES:]), skipped + len(part))
            elif len(line) + len(part) > limit:
                whole = line + part
                yield Overlong(bytes(whole[:END_BYTES]), bytes(whole[-END_BYTES:]), len(whole))
            else:
                line += part
                yield bytes(line)
            line, skipped = bytearray(), 0
        line += rest
        if skipped or len(line) > limit:
            begin = begin if skipped else bytes(line[:END_BYTES])
            if not begin.lstrip().startswith(b"{"):
                raise EndlessLineError
            skipped += len(rest) if skipped else len(line)
            line = line[-END_BYTES:]
            if skipped > MAX_SKIPPED_BYTES:
                raise EndlessLineError


def is_answer(begin: bytes) -> bool:
    """Whether a line with this beginning is a response."""
    return _BEGIN.match(begin) is not None


def answered_id(begin: bytes, end: bytes) -> int | str | None:
    """The id of the request to which a line responds; None if it is not a response, or if neither end has the id."""
    opening = _BEGIN.match(begin[:END_BYTES])
    if not opening:
        return None
    closing = None if opening[1] else _END.search(end[-END_BYTES:])
    found = opening[1] or (closing and closing[1])
    if not found:
        return None
    return found[1:-1].decode("utf-8", "replace") if found.startswith(b'"') else int(found)
