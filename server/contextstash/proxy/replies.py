"""A reply of the model API: passed on as it comes, and read beside for its usage, its refusal, and its last words.

Requests ask for replies that are not compressed; one that is all the same is passed on unread.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2

from contextstash.messages.base import read_usage
from contextstash_storage.records import Native, Usage

MAX_REPLY_BYTES = 16 << 20
"""A longer reply is not read; it is passed on all the same. A stream takes some 120 bytes for a token."""

MAX_HELD_BYTES = 4 << 20
"""A longer beginning is passed on unread. The first events of a stream repeat the request's instructions and tools, 100
KB; refusals take less than 10."""

EDIT_REFUSALS = (400, 413, 422)
"""The statuses with which a provider says that the request itself is wrong. 401, 403 and 429 are about the sender."""

EMPTY_EVENTS = ("response.created", "response.queued", "response.in_progress")
"""The events in front of the first one that says something (OpenAI's reference of streaming events). Only these are
held back."""

FAILURES = ("response.failed", "error")
"""The events with which a stream ends that the API refuses; both were seen for requests that are too long."""

REFUSED_CODES = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
"""The codes that are about the request itself, as status 400 is, and not about the sender or the API."""

ENDS = ("end_turn", "stop_sequence")
"""Anthropic's reasons to stop after which no request for the same turn follows."""


class Reply:
    """A response whose body is passed on by `chunks`. `refusal` is the status and the text with which it refuses the
    request itself, None in place of a text that cannot be read."""

    def __init__(self, response: httpx2.Response, format_name: str | None = None, *, long_writes: bool = False) -> None:
        """With `long_writes` the request asks that the cache keeps what it writes for an hour: a usage that does not
        say how long counts so."""
        self.response = response
        self.refusal: tuple[int, bytes | None] | None = None
        self._format = format_name
        self._long_writes = long_writes
        self._kind = response.headers.get("content-type", "")
        self._rest = response.aiter_raw()
        self._held: list[bytes] = []
        self._data = bytearray()

    @property
    def succeeded(self) -> bool:
        """Whether the model replies."""
        return self.refusal is None and self.response.status_code < 400

    async def begin(self) -> None:
        """Hold the body back until it is known whether it refuses the request: a refusal to its end, a stream of the
        Responses API up to the first event that says something."""
        refused = self.response.status_code in EDIT_REFUSALS
        if not refused and not (self._format == "openai-responses" and "event-stream" in self._kind):
            return
        first: bytes | None = None
        async for chunk in self._rest:
            self._held.append(chunk)
            self._data += chunk
            first = None if refused else next(filter(_says_something, self._parts), None)
            if first is not None or len(self._data) > MAX_HELD_BYTES:
                break
        if refused:
            is_text = "content-encoding" not in self.response.headers
            self.refusal = self.response.status_code, bytes(self._data) if is_text else None
        elif first is not None and _refuses(_object(first)):
            self.refusal = EDIT_REFUSALS[0], first

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes."""
        for chunk in self._held:
            yield chunk
        async for chunk in self._rest:
            if len(self._data) <= MAX_REPLY_BYTES:
                self._data += chunk
            yield chunk

    @property
    def _parts(self) -> list[bytes]:
        """The events of a stream that have come whole, or the one document that the body is."""
        if len(self._data) > MAX_REPLY_BYTES:
            return []
        if "text/event-stream" in self._kind:
            lines = bytes(self._data[: self._data.rfind(b"\n") + 1]).split(b"\n")
            return [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [bytes(self._data)] if "json" in self._kind else []

    @property
    def usages(self) -> list[Usage]:
        """What the provider has reported: the usage of the reply, and those of the API's own compactions within the
        request, which Anthropic does not count in it; none if it was not readable. Anthropic reports the prompt in
        `message_start` and the reply's length in `message_delta`; OpenAI all at once, in the last event."""
        reported: dict[str, Any] = {}
        for part in self._parts:
            event = _object(part) if b'usage"' in part else {}
            for holder in (event, event.get("message"), event.get("response")):
                if isinstance(holder, dict) and isinstance(found := holder.get("usage"), dict):
                    reported |= {key: value for key, value in found.items() if value is not None}
        try:
            parts = [each for each in reported.get("iterations") or () if each["type"] == "compaction"]
            usages = [usage for each in (reported, *parts) if (usage := read_usage(each)) is not None]
        except Exception:  # a body from elsewhere may hold anything
            return []
        if not self._long_writes or "cache_creation" in reported:
            return usages
        return [usage.model_copy(update={"cache_write_1h_tokens": usage.cache_write_tokens}) for usage in usages]

    @property
    def last_words(self) -> list[Native]:
        """What the model says at the end of a turn, as a message of its format; none if it calls a tool, since the next
        request holds the reply then, or if the reply is not whole."""
        try:
            events = [json.loads(part) for part in self._parts]
            if self._format == "anthropic":
                return _message(events)
            return _items(events) if self._format == "openai-responses" else []
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return []


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object that this is; an empty one if it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _says_something(part: bytes) -> bool:
    """Whether an event is whole, and not one of those in front of the reply."""
    event = _object(part)
    return bool(event) and event.get("type") not in EMPTY_EVENTS


def _refuses(event: dict[str, Any]) -> bool:
    """Whether an event of a stream refuses the request."""
    response = event.get("response")
    holders = (event, event.get("error"), response.get("error") if isinstance(response, dict) else None)
    coded = any(isinstance(holder, dict) and holder.get("code") in REFUSED_CODES for holder in holders)
    return coded and event.get("type") in FAILURES


def _message(events: Sequence[Any]) -> list[Native]:
    texts: dict[int, str] = {}
    stopped = None
    for event in events:
        if event["type"] == "message":
            texts = {place: each["text"] for place, each in enumerate(event["content"]) if each["type"] == "text"}
            stopped = event["stop_reason"]
        elif event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
            texts[event["index"]] = texts.get(event["index"], "") + event["delta"]["text"]
        elif event["type"] == "message_delta":
            stopped = event["delta"].get("stop_reason") or stopped
    content = [{"type": "text", "text": text} for _, text in sorted(texts.items()) if text]
    return [{"role": "assistant", "content": content}] if content and stopped in ENDS else []


def _items(events: Sequence[Any]) -> list[Native]:
    """The messages among the items, as Codex sends them back (0.169)."""
    items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    if events[-1]["type"] != "response.completed" or any(str(each["type"]).endswith("_call") for each in items):
        return []
    messages = [item for item in items if item["type"] == "message"]
    contents = [[{"type": part["type"], "text": part["text"]} for part in each["content"]] for each in messages]
    return [{"type": "message", "role": "assistant", "content": content} for content in contents]
