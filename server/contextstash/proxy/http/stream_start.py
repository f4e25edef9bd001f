"""The beginning of a streamed reply of OpenAI's Responses API, which refuses a request in its stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

from contextstash.proxy.http.encodings import decoder

EMPTY_EVENTS = ("response.created", "response.queued", "response.in_progress")
"""The events in front of the first one that says something (OpenAI's reference of streaming events). Only these are
held back."""

FAILURES = ("response.failed", "error")
"""The events with which a stream ends that the API refuses; both were seen for requests that are too long."""

REFUSED_CODES = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
"""The codes that are about the request itself, as status 400 is, and not about the sender or the API."""

MAX_HELD_BYTES = 4 << 20
"""A longer beginning, as sent or decoded, is passed on unread. The first events repeat the request's instructions and
tools, 100 KB."""


async def held_start(chunks: AsyncIterator[bytes], encoding: str | None) -> tuple[list[bytes], bytes | None]:
    """The first chunks of a stream, up to the first event that says something, and that event if it refuses the
    request. Never raises for what the stream contains: one that cannot be read is passed on."""
    held: list[bytes] = []
    decoded = decoder(encoding)
    begun, size = bytearray(), 0
    async for chunk in chunks:
        held.append(chunk)
        try:
            text = decoded(chunk)
        except Exception:
            return held, None
        # Only new text is split: a line may come in very many chunks.
        size += max(len(chunk), len(text))
        ended, line_break, rest = text.rpartition(b"\n")
        begun += ended
        if line_break:
            for line in bytes(begun).split(b"\n"):
                if line.startswith(b"data:") and not _is_empty(line[5:]):
                    return held, line[5:].strip() if _refuses(line[5:]) else None
            begun = bytearray()
        begun += rest
        if size > MAX_HELD_BYTES:
            break
    return held, None


def _is_empty(data: bytes) -> bool:
    return _event(data).get("type") in EMPTY_EVENTS


def _refuses(data: bytes) -> bool:
    event = _event(data)
    if event.get("type") not in FAILURES:
        return False
    response = event.get("response")
    holders = (event, event.get("error"), response.get("error") if isinstance(response, dict) else None)
    return any(isinstance(holder, dict) and holder.get("code") in REFUSED_CODES for holder in holders)


def _event(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return event if isinstance(event, dict) else {}
