"""What a reply of the model API says: its usage, a refusal in its stream, and its messages. Nothing of it is changed.

Requests ask for replies that are not compressed; one that is all the same is passed on unread.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from contextstash.messages.usage import read_usage
from contextstash_storage.records import Native, Usage

MAX_LINE_BYTES = 1 << 20
MAX_JSON_BYTES = 16 << 20
"""Longer events and bodies are not read for their usage; they are passed on all the same."""

MAX_REPLY_BYTES = 1 << 20
"""A longer reply is not kept: replies that end a turn take some 10 kB as a stream, 100 bytes for each piece."""

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


class ReplyReader:
    """Gets every chunk of a response. `parts` are its events or its body, none if that is too long. It has `begun` with
    the first event that says something, which is the `refusal` if it refuses the request."""

    def __init__(self, content_type: str | None, *, long_writes: bool = False) -> None:
        """With `long_writes` the request asks that the cache keeps what it writes for an hour: a usage that does not
        say how long counts so."""
        self._long_writes = long_writes
        self._stream = "text/event-stream" in (content_type or "")
        self._readable = self._stream or "json" in (content_type or "")
        self._pending = bytearray()
        self._reported: dict[str, Any] = {}
        self._size = 0
        self._events: list[bytes] = []
        self.begun = not self._stream
        self.refusal: bytes | None = None

    def take(self, chunk: bytes) -> None:
        """Read a chunk. Never raises: a response that cannot be read has no usage."""
        if not self._readable:
            return
        try:
            if self._stream:
                self._read_lines(chunk)
            else:
                self._pending += chunk
            if len(self._pending) > (MAX_LINE_BYTES if self._stream else MAX_JSON_BYTES):
                self._stop()
        except Exception:
            self._stop()

    async def start(self, chunks: AsyncIterator[bytes]) -> list[bytes]:
        """The first chunks, up to the first event that says something."""
        held, size = list[bytes](), 0
        async for chunk in chunks:
            held.append(chunk)
            self.take(chunk)
            size += len(chunk)
            if self.begun or size > MAX_HELD_BYTES:
                break
        return held

    @property
    def usage(self) -> Usage | None:
        """What the provider has reported so far, None if none was readable."""
        try:
            if self._readable and not self._stream and self._pending:
                self._merge(json.loads(self._pending))
            found = read_usage(self._reported)
        except Exception:
            return None
        if found is None or not self._long_writes or "cache_creation" in self._reported:
            return found
        return found.model_copy(update={"cache_write_1h_tokens": found.cache_write_tokens})

    @property
    def parts(self) -> Sequence[bytes]:
        """The events of the stream so far, or the body."""
        if not self._readable or max(self._size, len(self._pending)) > MAX_REPLY_BYTES:
            return ()
        return self._events if self._stream else (bytes(self._pending),)

    def _stop(self) -> None:
        self._readable, self.begun, self._pending = False, True, bytearray()

    def _read_lines(self, chunk: bytes) -> None:
        # Only new text is split: a line may come in very many chunks.
        ended, line_break, rest = chunk.rpartition(b"\n")
        self._pending += ended
        if line_break:
            lines, self._pending = bytes(self._pending).split(b"\n"), bytearray()
            for line in lines:
                if line.startswith(b"data:"):
                    self._read_event(line[5:].strip())
        self._pending += rest

    def _read_event(self, data: bytes) -> None:
        """Nearly all events are pieces of the reply: only those that can report something are parsed."""
        self._size += len(data)
        if self._size <= MAX_REPLY_BYTES:
            self._events.append(data)
        if not self.begun and (event := _event(data)).get("type") not in EMPTY_EVENTS:
            self.begun, self.refusal = True, data if _refuses(event) else None
        if b'usage"' in data:
            self._merge(json.loads(data))

    def _merge(self, data: Any) -> None:
        """Anthropic reports the prompt in `message_start` and the reply's length in `message_delta`; OpenAI all at
        once, in the last chunk or in `response.completed`."""
        if not isinstance(data, dict):
            return
        for holder in (data, data.get("message"), data.get("response")):
            if isinstance(holder, dict) and isinstance(found := holder.get("usage"), dict):
                self._reported.update({key: value for key, value in found.items() if value is not None})


def _refuses(event: Mapping[str, Any]) -> bool:
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
