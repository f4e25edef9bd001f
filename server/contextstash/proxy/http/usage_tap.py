"""Reads the usage out of a response while it passes by, and changes nothing of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from contextstash.messages.reasoning_reports import DroppedPiece, dropped_pieces
from contextstash.messages.usage import read_usage
from contextstash.proxy.http.encodings import decoder
from contextstash_storage.records import Usage

REPORT = b'"input_transformations"'

MAX_LINE_BYTES = 1 << 20
MAX_JSON_BYTES = 16 << 20
"""Longer events and bodies are not read for their usage; they are passed on all the same."""

MAX_REPLY_BYTES = 1 << 20
"""A longer reply is not kept: replies that end a turn take some 10 kB as a stream, 100 bytes for each piece."""


class UsageTap:
    """Gets every chunk of a response. `usage` is what the provider has reported so far, None if none was readable;
    `response` is the reply with its id, if it came as a whole (Responses API); `dropped` is the reasoning that the
    provider left out of the request, as far as it says so; `parts` are its events or
    its body, if that is not too long."""

    def __init__(self, content_type: str | None, content_encoding: str | None, *, long_writes: bool = False) -> None:
        """With `long_writes` the request asks that the cache keeps what it writes for an hour: a usage that does not
        say how long counts so."""
        self._long_writes = long_writes
        self._stream = "text/event-stream" in (content_type or "")
        self._readable = self._stream or "json" in (content_type or "")
        self._decoder = decoder(content_encoding)
        self._pending = b""
        self._reported: dict[str, Any] = {}
        self._size = 0
        self._events: list[bytes] = []
        self.response: dict[str, Any] | None = None
        self.dropped: tuple[DroppedPiece, ...] = ()

    def take(self, chunk: bytes) -> None:
        """Read a chunk. Never raises: a response that cannot be read has no usage."""
        if not self._readable:
            return
        try:
            self._pending += self._decoder(chunk)
            if self._stream:
                self._read_lines()
            elif len(self._pending) > MAX_JSON_BYTES:
                self._stop()
        except Exception:
            self._stop()

    @property
    def usage(self) -> Usage | None:
        """The usage of the response so far."""
        if self._readable and not self._stream and self._pending:
            try:
                self._merge(json.loads(self._pending))
            except (ValueError, RecursionError):
                self._stop()
        try:
            found = read_usage(self._reported)
        except Exception:
            return None
        if found is None or not self._long_writes or "cache_creation" in self._reported:
            return found
        return found.model_copy(update={"cache_write_1h_tokens": found.cache_write_tokens})

    @property
    def parts(self) -> Sequence[bytes]:
        """The events of the stream so far, or the body; none if they are too long or could not be read."""
        if not self._readable or max(self._size, len(self._pending)) > MAX_REPLY_BYTES:
            return ()
        return self._events if self._stream else (self._pending,)

    def _stop(self) -> None:
        self._readable, self._pending = False, b""

    def _read_lines(self) -> None:
        *lines, self._pending = self._pending.split(b"\n")
        if len(self._pending) > MAX_LINE_BYTES:
            self._stop()
        for line in lines:
            # Nearly all events are pieces of the reply: only those that can report something are parsed.
            if not line.startswith(b"data:"):
                continue
            self._size += len(line)
            if self._size <= MAX_REPLY_BYTES:
                self._events.append(line[5:])
            if b'usage"' in line or REPORT in line:
                self._merge(json.loads(line[5:]))

    def _merge(self, data: Any) -> None:
        """Anthropic reports the prompt in `message_start` and the reply's length in `message_delta`; OpenAI all at
        once, in the last chunk or in `response.completed`."""
        if not isinstance(data, dict):
            return
        for holder in (data, data.get("message"), data.get("response")):
            if isinstance(holder, dict) and isinstance(holder.get("output"), list) and holder.get("id"):
                self.response = holder
            if not isinstance(holder, dict):
                continue
            self.dropped = dropped_pieces(holder) or self.dropped
            if isinstance(found := holder.get("usage"), dict):
                self._reported.update({key: value for key, value in found.items() if value is not None})
