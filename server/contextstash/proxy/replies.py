"""What a reply of the model API says: its usage, a refusal in its stream, and its messages. Nothing of it is changed.

Requests ask for replies that are not compressed; one that is all the same is passed on unread.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from contextstash.messages.usage import read_usage
from contextstash_storage.records import Native, Usage

MAX_REPLY_BYTES = 16 << 20
"""A longer reply is not read; it is passed on all the same. A stream takes some 120 bytes for a token."""

MAX_FINAL_BYTES = 1 << 20
"""A longer one is not kept for its messages: replies that end a turn take some 10 kB."""

EMPTY_EVENTS = ("response.created", "response.queued", "response.in_progress")
"""The events in front of the first one that says something (OpenAI's reference of streaming events). Only these are
held back."""

FAILURES = ("response.failed", "error")
"""The events with which a stream ends that the API refuses; both were seen for requests that are too long."""

REFUSED_CODES = ("context_length_exceeded", "invalid_prompt", "invalid_request_error")
"""The codes that are about the request itself, as status 400 is, and not about the sender or the API."""

MAX_HELD_BYTES = 4 << 20
"""A longer beginning is passed on unread. The first events repeat the request's instructions and tools, 100 KB."""

ENDS = ("end_turn", "stop_sequence")
"""Anthropic's reasons to stop after which no request for the same turn follows."""

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The member to which a piece of Anthropic's stream is added, by the type of the delta."""

_SENT_BACK = {
    "message": ("type", "role", "phase", "content"),
    "reasoning": ("type", "summary", "content", "encrypted_content"),
}
"""What Codex 0.169 keeps of the items of a reply; it leaves out their ids and states."""


@dataclass
class ReplyBody:
    """The body of a reply as far as it has come. With `long_writes` the request asks that the cache keeps what it
    writes for an hour: a usage that does not say how long counts so."""

    content_type: str = ""
    long_writes: bool = False
    data: bytearray = field(default_factory=bytearray)
    too_long: bool = False

    def take(self, chunk: bytes) -> None:
        """Keep a chunk, as long as the body is short enough to be read."""
        self.data += chunk
        self.too_long = self.too_long or len(self.data) > MAX_REPLY_BYTES
        if self.too_long:
            self.data.clear()

    @property
    def parts(self) -> list[bytes]:
        """The events of a stream that have come whole, or the one document that the body is."""
        if "text/event-stream" in self.content_type:
            lines = bytes(self.data[: self.data.rfind(b"\n") + 1]).split(b"\n")
            return [line[5:].strip() for line in lines if line.startswith(b"data:")]
        return [bytes(self.data)] if "json" in self.content_type else []

    @property
    def ending(self) -> Sequence[bytes]:
        """The same for `final_reply`; nothing if that is too long to be kept."""
        return self.parts if len(self.data) <= MAX_FINAL_BYTES else ()

    @property
    def usage(self) -> Usage | None:
        """What the provider has reported so far, None if none was readable. Anthropic reports the prompt in
        `message_start` and the reply's length in `message_delta`; OpenAI all at once, in the last event."""
        reported: dict[str, Any] = {}
        for part in self.parts:
            event = _object(part) if b'usage"' in part else {}
            for holder in (event, event.get("message"), event.get("response")):
                if isinstance(holder, dict) and isinstance(found := holder.get("usage"), dict):
                    reported |= {key: value for key, value in found.items() if value is not None}
        try:
            usage = read_usage(reported)
        except Exception:  # a body from elsewhere may hold anything
            return None
        if usage is None or not self.long_writes or "cache_creation" in reported:
            return usage
        return usage.model_copy(update={"cache_write_1h_tokens": usage.cache_write_tokens})

    async def start(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        """The first chunks, up to the first event that says something."""
        held = list[bytes]()
        async for chunk in chunks:
            held.append(chunk)
            self.take(chunk)
            if self._first is not None or len(self.data) > MAX_HELD_BYTES:
                break
        return held

    @property
    def refusal(self) -> bytes | None:
        """The first event that says something, if it refuses the request."""
        event = _object(self._first or b"")
        response = event.get("response")
        holders = (event, event.get("error"), response.get("error") if isinstance(response, dict) else None)
        refuses = any(isinstance(holder, dict) and holder.get("code") in REFUSED_CODES for holder in holders)
        return self._first if refuses and event.get("type") in FAILURES else None

    @property
    def _first(self) -> bytes | None:
        return next((part for part in self.parts if _object(part).get("type") not in EMPTY_EVENTS), None)


def _object(data: bytes) -> dict[str, Any]:
    """The JSON object that this is; an empty one if it is none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def final_reply(format_name: str, parts: Sequence[bytes]) -> list[Native]:
    """The messages of a reply that ends a turn, in the form in which clients send them back; none if it calls a tool,
    since the next request holds it then, or if it is not whole. `parts` are the events of its stream, or its body."""
    try:
        events = [json.loads(part) for part in parts]
        if format_name == "anthropic":
            return _message(events)
        return _items(events) if format_name == "openai-responses" else []
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []


def _message(events: Sequence[Any]) -> list[Native]:
    blocks: dict[int, dict[str, Any]] = {}
    ended, stopped = False, None
    for event in events:
        match event["type"]:
            case "message":
                blocks, ended, stopped = dict(enumerate(event["content"])), True, event["stop_reason"]
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                block, delta = blocks[event["index"]], event["delta"]
                name = _TEXTS[delta["type"]]
                block[name] = block.get(name, "") + delta[name]
            case "message_delta":
                stopped = event["delta"].get("stop_reason") or stopped
            case "message_stop":
                ended = True
    content = [blocks[index] for index in sorted(blocks)]
    whole = ended and stopped in ENDS and {block["type"] for block in content} <= {"text", "thinking"}
    return [{"role": "assistant", "content": content}] if whole and any(block.get("text") for block in content) else []


def _items(events: Sequence[Any]) -> list[Native]:
    items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    ends = [event for event in events if event.get("type") == "response.completed" or "output" in event]
    if not ends:
        return []
    response = ends[-1].get("response", ends[-1])
    items = items or list(response.get("output") or ())
    kinds = {item["type"] for item in items}
    whole = response.get("status", "completed") == "completed" and "message" in kinds <= _SENT_BACK.keys()
    return [_sent_back(item) for item in items] if whole else []


def _sent_back(item: Mapping[str, Any]) -> Native:
    kept = {name: item[name] for name in _SENT_BACK[item["type"]] if item.get(name) is not None}
    if item["type"] == "message":
        kept["content"] = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
    return kept
