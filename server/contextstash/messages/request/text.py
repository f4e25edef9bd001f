"""A request to a model API as text: where its messages stand in the JSON, and what they say.

    request = read_request("anthropic", body, before)
    body[slice(*request.spans[3])] == request.messages[3].raw

The body is read in Latin-1, as `json_positions` says; a message that is not ASCII is then decoded again, as UTF-8. What
stands where it stood in the request before is not read again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

from contextstash.messages.anthropic import THINKING
from contextstash.messages.base import Path
from contextstash.messages.breakpoints import content_of, without_breakpoints
from contextstash.messages.detection import get_format
from contextstash.messages.json_positions import (
    JsonPositionError,
    Span,
    find,
    first_item,
    members,
    next_item,
    skip_space,
    value_at,
)
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native

LIST_KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input"}
"""The member of a request that holds its messages, by format."""

SERVER_STATE_KEYS = ("previous_response_id", "conversation")
"""Fields of a Responses request that continue a conversation stored by OpenAI."""

MAX_MESSAGES = 10_000
"""A request with more messages is not read: each takes 30 µs, in which no other request goes on. The longest recorded
session had 2,000."""

_DECODER = json.JSONDecoder()

Derived = TypeVar("Derived")


class ToolResult(NamedTuple):
    """A tool result in a message: the id of its call, the path to its content in the message, and the content; if it
    holds nothing but text, which alone a placeholder may hide, that text, the SHA-256 under which it is recorded, and
    how many bytes of JSON it takes."""

    call_id: str
    path: Path
    content: Any
    text: str | None = None
    sha256: str = ""
    size: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What names the output in its session."""
        return self.call_id, self.sha256


@dataclass(eq=False)
class TextMessage:
    """A message of a request: its bytes, and what follows from them. The same object stands for the same bytes in later
    requests, so that nothing is derived twice; `notes` are values that are kept with it."""

    raw: bytes
    native: Native
    format: str
    notes: dict[Any, Any] = field(default_factory=dict)

    def noted(self, derive: Callable[[TextMessage], Derived]) -> Derived:
        """What a function derives from the message; it is called once."""
        if derive not in self.notes:
            self.notes[derive] = derive(self)
        found: Derived = self.notes[derive]
        return found

    @cached_property
    def results(self) -> tuple[ToolResult, ...]:
        try:
            read = get_format(self.format).read(self.native)
        except BadMessageError:
            return ()
        found = [(block.call_id, path) for block, path in zip(read.blocks, read.paths, strict=True) if path]
        return tuple(self._result(call_id, path, _value(self.native, path)) for call_id, path in found if call_id)

    def _result(self, call_id: str, path: Path, content: Any) -> ToolResult:
        text = _plain_text(content)
        if text is None:
            return ToolResult(call_id, path, content)
        digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        written = json.dumps(text, ensure_ascii=self.raw.isascii()).encode("utf-8", "surrogatepass")
        return ToolResult(call_id, path, content, text, digest, len(written))

    @cached_property
    def is_models(self) -> bool:
        """Whether the model wrote it."""
        return is_models(self.native)

    @cached_property
    def reasons(self) -> bool:
        """Whether it holds the model's reasoning, readable or sealed."""
        blocks = (block.get("type") for block in content_of(self.native) if isinstance(block, dict))
        return self.native.get("type") == "reasoning" or any(kind in THINKING for kind in blocks)

    @cached_property
    def plain(self) -> Native:
        """The message without its cache breakpoints, in one of the shapes that mean the same. Clients move breakpoints
        with each request, and write a text as a list of one block to attach one."""
        content = self.native.get("content")
        if not isinstance(content, list):
            return self.native
        blocks: Any = without_breakpoints(content)
        if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
            blocks = blocks[0]["text"] if blocks[0]["type"] == "text" else blocks
        return {**self.native, "content": blocks}

    def span(self, path: Path) -> Span:
        """The span in `raw` of the value at a path. Raises JsonPositionError."""
        if path not in self.notes:
            self.notes[path] = find(self.raw.decode("latin-1"), 0, path)
        found: Span = self.notes[path]
        return found


@dataclass(frozen=True)
class RequestText:
    """The body of a request. `spans[i]` is where `messages[i]` stands; `fields` are the spans of the body's members."""

    format: str
    body: bytes
    messages: tuple[TextMessage, ...]
    spans: tuple[Span, ...]
    fields: dict[str, Span]

    @property
    def latest(self) -> TextMessage:
        """The last message that is not an instruction: Claude Code (2.1) writes reminders for newer models as messages
        of the role `system` behind the user's."""
        others = (each for each in reversed(self.messages) if each.native.get("role") != "system")
        return next(others, self.messages[-1])

    def value(self, key: str) -> Any:
        """A member of the body other than its messages, to be read only; None if the body does not have it."""
        span = self.fields.get(key)
        return None if span is None else _parsed(self.body[slice(*span)])


@lru_cache(maxsize=64)
def _parsed(raw: bytes) -> Any:
    """The value of a member: tools and system prompt are the same in each request."""
    return json.loads(raw)


def read_request(format_name: str, body: bytes, before: RequestText | None = None) -> RequestText:
    """Read the body of a request. `before` is an earlier request of the same session.

    Raises ValueError, of which JsonPositionError is one kind, if the body is not a JSON object with a list of messages,
    or has a member twice: parsers differ in which of two equal keys counts.
    """
    key, text = LIST_KEYS[format_name], body.decode("latin-1")
    before = before if before is not None and before.format == format_name else None
    messages: list[TextMessage] = []
    spans: list[Span] = []

    def measure(name: str, at: int) -> Span:
        if name == key and body[at : at + 1] == b"[":
            for message, span in _messages(body, text, at, before, format_name):
                messages.append(message)
                spans.append(span)
            return Span(at, skip_space(text, spans[-1].end if spans else at + 1) + 1)
        former = before.body[slice(*before.fields[name])] if before and name in before.fields else b""
        if former[:1] in (b"[", b"{") and body.startswith(former, at):
            return Span(at, at + len(former))
        return value_at(text, at)

    start = end = skip_space(text, 0)
    fields: dict[str, Span] = {}
    for member in members(text, start, measure):
        if member.key in fields:
            raise JsonPositionError(f"the member '{member.key}' is there twice")
        fields[member.key] = member.value
        end = member.value.end
    closing = skip_space(text, end)
    if text[closing : closing + 1] != "}" or skip_space(text, closing + 1) != len(body):
        raise JsonPositionError("something follows the request's object")
    if not messages:
        raise JsonPositionError(f"no list of messages in '{key}'")
    if not body.isascii():
        body.decode("utf-8", "surrogatepass")  # raises if it is not text
    return RequestText(format_name, body, tuple(messages), tuple(spans), fields)


def _messages(
    body: bytes, text: str, start: int, before: RequestText | None, format_name: str
) -> list[tuple[TextMessage, Span]]:
    """The messages of the list that begins at `start`. One of the request before that stands here in the same place is
    taken over: its bytes are a whole message, since an object ends with its last brace, so that no longer one begins
    with them."""
    at = first_item(text, start, "[")
    known, found = before.messages if before else (), _shared(body, at, before) if before and at >= 0 else []
    if found:
        at = next_item(text, found[-1][1].end, "]")
    while at >= 0:
        place = len(found)
        if place >= MAX_MESSAGES:
            raise JsonPositionError(f"more than {MAX_MESSAGES:,} messages")
        message = known[place] if place < len(known) and body.startswith(known[place].raw, at) else None
        if message is None:
            value, end = _DECODER.raw_decode(text, at)
            if not isinstance(value, dict):
                raise JsonPositionError(f"the message at byte {at} is not an object")
            raw = body[at:end]
            native = value if raw.isascii() else _DECODER.decode(raw.decode("utf-8", "surrogatepass"))
            message = TextMessage(raw, native, format_name)
        end = at + len(message.raw)
        found.append((message, Span(at, end)))
        at = next_item(text, end, "]")
    return found


def _shared(body: bytes, at: int, before: RequestText) -> list[tuple[TextMessage, Span]]:
    """The messages that stand at byte `at` as in the request before, by one comparison of many bytes: all but the last
    three, in which clients move their breakpoints. Empty if one of them differs."""
    count, first = len(before.messages) - 3, before.spans[0].start
    if count < 1 or not body.startswith(before.body[first : before.spans[count - 1].end], at):
        return []
    shift = at - first
    spans = [Span(start + shift, end + shift) for start, end in before.spans[:count]] if shift else before.spans
    return list(zip(before.messages[:count], spans, strict=False))


def is_models(native: Native) -> bool:
    """Whether the model wrote a message: one of the assistant, or another item of a reply of the Responses API."""
    role = native.get("role")
    return role == "assistant" or (role is None and not str(native.get("type")).endswith("_output"))


def message_of(native: Native, format_name: str) -> TextMessage:
    """A message that stands in no request."""
    return TextMessage(json.dumps(native).encode("utf-8", "surrogatepass"), native, format_name)


def _value(native: Any, path: Path) -> Any:
    """The value at a path; None if the last key is missing."""
    for step in path[:-1]:
        native = native[step]
    return native.get(path[-1])


def _plain_text(content: Any) -> str | None:
    if isinstance(content, str):
        return content
    texts = list[str]()
    for part in content if isinstance(content, list) else [{}]:
        kind, text = (part.get("type"), part.get("text")) if isinstance(part, dict) else (None, None)
        if not isinstance(text, str) or kind not in ("text", "input_text", "output_text"):
            return None
        texts.append(text)
    return "\n".join(texts)
