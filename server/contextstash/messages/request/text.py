"""A request to a model API as text: where its messages stand in the JSON, and what they say."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from operator import attrgetter
from typing import Any, Literal, NamedTuple

from contextstash.messages.anthropic import THINKING
from contextstash.messages.base import Path
from contextstash.messages.breakpoints import BREAKPOINT_KEY, content_of
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
from contextstash_storage.records import Native

LIST_KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input"}
"""The member of a request that holds its messages, by format."""

RESULT_ITEMS = ("function_call_output", "custom_tool_call_output")
"""Items of the Responses API with the text of a tool's result. The second one answers tools that take free text: for
GPT-6, Codex runs all its tools by one that takes a program (seen in 0.169)."""

SERVER_STATE_KEYS = ("previous_response_id", "conversation")
"""Fields of a Responses request that continue a conversation stored by OpenAI."""

MAX_MESSAGES = 10_000
"""A request with more messages is not read: each takes 30 µs, in which no other request goes on. The longest recorded
session had 2,000."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """A tool result in a message: the id of its call, the path to its content in the message, and the content."""

    call_id: str
    path: Path
    content: Any


class ToolOutput(NamedTuple):
    """The text of a tool result: the id of its call, about how many bytes of JSON it takes, and its SHA-256."""

    call_id: str
    size: int
    sha256: str


@dataclass(eq=False)
class TextMessage:
    """A message of a request: its bytes, and what follows from them. The same object stands for the same bytes in later
    requests, so that nothing is derived twice."""

    raw: bytes
    native: Native
    format: str

    @cached_property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(_results(self.native, self.format))

    @cached_property
    def texts(self) -> Mapping[Path, str]:
        """The text of each result that holds nothing but text, by its path."""
        found = {result.path: plain_text_of(result.content) for result in self.results}
        return {path: text for path, text in found.items() if text is not None}

    @cached_property
    def hashes(self) -> Mapping[Path, str]:
        """The SHA-256 of each of these texts, as outputs are recorded."""
        return {path: output_sha256(text) for path, text in self.texts.items()}

    @cached_property
    def sizes(self) -> Mapping[Path, int]:
        """About how many bytes of JSON the content of each result takes: its share of the message by characters. To
        find its exact span takes longer than all else that a request needs."""
        whole = sum(len(text) for text in self.texts.values()) + _characters_beside(self)
        return {path: round(len(self.raw) * len(text) / max(1, whole)) for path, text in self.texts.items()}

    @cached_property
    def outputs(self) -> tuple[ToolOutput, ...]:
        """Its results that hold nothing but text."""
        return tuple(
            ToolOutput(result.call_id, self.sizes[result.path], self.hashes[result.path])
            for result in self.results
            if result.path in self.texts
        )

    @cached_property
    def notes(self) -> dict[str, Any]:
        """Values that a caller derives from the message and keeps as long as the message is known."""
        return {}

    def span(self, path: Path) -> Span:
        """The span in `raw` of the value at a path. Raises JsonPositionError."""
        if path not in self._spans:
            self._spans[path] = find(self.raw, 0, path)
        return self._spans[path]

    @cached_property
    def _spans(self) -> dict[Path, Span]:
        return {}

    @cached_property
    def is_models(self) -> bool:
        """Whether the model wrote it: a message of the assistant, or another item of a reply of the Responses API."""
        role = self.native.get("role")
        return role == "assistant" or (role is None and not str(self.native.get("type")).endswith("_output"))

    @cached_property
    def has_long_breakpoint(self) -> bool:
        """Whether a breakpoint here keeps the cache for an hour."""
        return b'"1h"' in self.raw and has_long_breakpoint(content_of(self.native))

    @cached_property
    def thinks(self) -> bool:
        """Whether the message holds the model's thinking."""
        return any(is_thinking(block) for block in content_of(self.native))

    @cached_property
    def plain(self) -> Native:
        """The message without its cache breakpoints, in one of the shapes that mean the same. Clients move breakpoints
        with each request, and write a text as a list of one block to attach one."""
        return _plain(self.native)


def message_of(native: Native, format_name: str) -> TextMessage:
    """A message that stands in no request."""
    return TextMessage(json.dumps(native).encode("utf-8", "surrogatepass"), native, format_name)


Fact = Literal["results", "thinks", "is_models", "has_long_breakpoint"] | Callable[[TextMessage], bool]
"""Something that a message is or is not: an attribute that it may have, or a function of it. It follows from the
message alone, so that it is asked once."""


@dataclass(frozen=True)
class RequestText:
    """The body of a request. `spans[i]` is where `messages[i]` stands; `fields` are the spans of the body's members.
    `asked` are the messages of which a fact is true, and of how many messages it was asked. `compacts` says that the
    request went to the API's own address for compaction."""

    format: str
    body: bytes
    messages: tuple[TextMessage, ...]
    spans: tuple[Span, ...]
    fields: Mapping[str, Span]
    small: dict[str, Any] = field(default_factory=dict)
    asked: dict[Fact, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    compacts: bool = False

    def places(self, fact: Fact) -> tuple[int, ...]:
        """The messages of which this is true, by their places. Only those are asked that the request before did not
        have."""
        count, found = self.asked.get(fact, (0, ()))
        if count < len(self.messages):
            holds = attrgetter(fact) if isinstance(fact, str) else fact
            found += tuple(place for place in range(count, len(self.messages)) if holds(self.messages[place]))
            self.asked[fact] = len(self.messages), found
        return found

    @property
    def latest(self) -> TextMessage:
        """The last message that is not an instruction: Claude Code (2.1) writes reminders for newer models as messages
        of the role `system` behind the user's."""
        return next(
            (each for each in reversed(self.messages) if each.native.get("role") != "system"), self.messages[-1]
        )

    def value(self, key: str) -> Any:
        """A member of the body other than its messages; None if it does not have it."""
        span = self.fields.get(key)
        if span is None:
            return None
        if key not in self.small:
            self.small[key] = json.loads(self.body[span.start : span.end])
        return self.small[key]


def read_request(format_name: str, body: bytes, before: RequestText | None = None) -> RequestText:
    """Read the body of a request. `before` is an earlier request of the same session: its messages are not read again.

    Raises JsonPositionError or ValueError if the body is not a JSON object with a list of messages, or has a member
    twice: parsers differ in which of two equal keys counts.
    """
    key = LIST_KEYS[format_name]
    before = before if before is not None and before.format == format_name else None
    listed: list[_Messages] = []

    def measure(name: str, at: int) -> Span:
        if name == key and body[at : at + 1] == b"[":
            listed.append(_Messages(body, at, before))
            return listed[-1].read(format_name)
        span = _same_as_before(body, at, name, before)
        if span is None:
            span = value_at(body, at)
            body[span.start : span.end].decode("utf-8", "surrogatepass")  # raises if it is not text
        return span

    start = skip_space(body, 0)
    fields: dict[str, Span] = {}
    end = start
    for member in members(body, start, measure):
        if member.key in fields:
            raise JsonPositionError(f"the member '{member.key}' is there twice")
        fields[member.key] = member.value
        end = member.value.end
    _check_end(body, end)
    if not listed or not listed[0].messages:
        raise JsonPositionError(f"no list of messages in '{key}'")
    [found] = listed
    asked = before.asked if before is not None else {}
    return RequestText(
        format_name,
        body,
        tuple(found.messages),
        tuple(found.spans),
        fields,
        _unchanged(body, fields, before),
        {
            fact: (min(count, found.shared), places[: bisect_left(places, found.shared)])
            for fact, (count, places) in asked.items()
        },
    )


def _check_end(body: bytes, end: int) -> None:
    closing = skip_space(body, end)
    if body[closing : closing + 1] != b"}" or skip_space(body, closing + 1) != len(body):
        raise JsonPositionError("something follows the request's object")


class _Messages:
    """The messages of the list that begins at `start`, and where they stand. The first `shared` ones are those that the
    request before begins with too."""

    def __init__(self, body: bytes, start: int, before: RequestText | None) -> None:
        self._body, self._start = body, start
        self._first = first_item(body, start, b"[")
        self._known = before.messages if before is not None else ()
        self.shared, shift = 0, 0
        spans: Iterable[Span] = ()
        if before is not None and self._first >= 0:
            shift = self._first - before.spans[0].start
            self.shared = _shared_messages(body, shift, before)
            spans = before.spans[: self.shared]
        self.messages = list(self._known[: self.shared])
        self.spans = [Span(span.start + shift, span.end + shift) for span in spans] if shift else list(spans)

    def read(self, format_name: str) -> Span:
        """Read the messages that are not shared; the span of the list."""
        body, end = self._body, self.spans[-1].end if self.spans else self._start + 1
        at = next_item(body, end, b"]") if self.spans else self._first
        objects = _Objects(body, at)
        while at >= 0:
            if len(self.messages) >= MAX_MESSAGES:
                raise JsonPositionError(f"more than {MAX_MESSAGES:,} messages")
            message = self._known_at(at)
            if message is None:
                raw, native = objects.read(at)
                message = TextMessage(raw, native, format_name)
            end = at + len(message.raw)
            self.messages.append(message)
            self.spans.append(Span(at, end))
            at = next_item(body, end, b"]")
        return Span(self._start, skip_space(body, end) + 1)

    def _known_at(self, at: int) -> TextMessage | None:
        """The message of the request before in the same place, if its bytes stand here. They are the whole message: an
        object ends with its last brace, so that no longer one begins with them."""
        place = len(self.messages)
        known = self._known[place] if place < len(self._known) else None
        return known if known is not None and self._body.startswith(known.raw, at) else None


class _Objects:
    """Reads objects that stand at or behind byte `start`.

    The C decoder finds their ends in a text that has one character for each byte (Latin-1), so that all positions are
    those of bytes: JSON's own signs are ASCII, and in UTF-8 no other character has a byte of theirs. The value is right
    if the object is ASCII; otherwise the object is decoded again, as UTF-8."""

    def __init__(self, body: bytes, start: int) -> None:
        self._body, self._start = body, start
        self._text = body[start:].decode("latin-1") if start >= 0 else ""

    def read(self, at: int) -> tuple[bytes, Native]:
        """The bytes of the object at this byte, and its value."""
        value, end = _DECODER.raw_decode(self._text, at - self._start)
        if not isinstance(value, dict):
            raise JsonPositionError(f"the message at byte {at} is not an object")
        raw = self._body[at : self._start + end]
        return raw, value if raw.isascii() else _DECODER.decode(raw.decode("utf-8", "surrogatepass"))


_DECODER = json.JSONDecoder()


def _shared_messages(body: bytes, shift: int, before: RequestText) -> int:
    """How many messages of the request before the body begins with, if they stand `shift` bytes further on: by few
    comparisons of many bytes, since a message ends where its braces are closed."""
    former, spans = memoryview(before.body), before.spans
    equal, most = 0, len(spans)
    while equal < most:
        tried = (equal + most + 1) // 2
        start = spans[equal - 1].end if equal else spans[0].start
        if body.startswith(former[start : spans[tried - 1].end], start + shift):
            equal = tried
        else:
            most = tried - 1
    return equal


def _same_as_before(body: bytes, at: int, name: str, before: RequestText | None) -> Span | None:
    """The span of an object or array that is equal to that of the former request; None if it is another."""
    former = before.fields.get(name) if before is not None else None
    if before is None or former is None or before.body[former.start : former.start + 1] not in (b"[", b"{"):
        return None
    return Span(at, at + former.end - former.start) if body.startswith(before.body[slice(*former)], at) else None


def _unchanged(body: bytes, fields: Mapping[str, Span], before: RequestText | None) -> dict[str, Any]:
    """The values of members that were read from the former request and have not changed."""
    if before is None:
        return {}
    return {
        key: value
        for key, value in before.small.items()
        if key in fields and body[slice(*fields[key])] == before.body[slice(*before.fields[key])]
    }


def _results(native: Native, format_name: str) -> list[ToolResult]:
    if format_name == "openai-chat":
        call_id = native.get("tool_call_id")
        is_result = native.get("role") == "tool" and isinstance(call_id, str)
        return [ToolResult(str(call_id), ("content",), native.get("content"))] if is_result else []
    if format_name == "openai-responses":
        call_id = native.get("call_id")
        is_result = native.get("type") in RESULT_ITEMS and isinstance(call_id, str)
        return [ToolResult(str(call_id), ("output",), native.get("output"))] if is_result else []
    return [
        ToolResult(block["tool_use_id"], ("content", place, "content"), block.get("content"))
        for place, block in enumerate(content_of(native))
        if isinstance(block, dict) and block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str)
    ]


def _plain(native: Native) -> Native:
    content = native.get("content")
    if not isinstance(content, list):
        return native
    blocks = [_without_breakpoint(block) for block in content]
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
        blocks_or_text: Any = blocks[0]["text"] if blocks[0]["type"] == "text" else blocks
        return {**native, "content": blocks_or_text}
    return {**native, "content": blocks}


def _without_breakpoint(block: Any) -> Any:
    if not isinstance(block, dict):
        return block
    inner = block.get("content")
    if BREAKPOINT_KEY not in block and not isinstance(inner, list):
        return block
    rest = {key: value for key, value in block.items() if key != BREAKPOINT_KEY}
    if isinstance(inner, list):
        rest["content"] = [_without_breakpoint(part) for part in inner]
    return rest


def _characters_beside(message: TextMessage) -> int:
    """Characters of a message outside its results' texts, if it holds other blocks."""
    results = {result.path[1] for result in message.results if len(result.path) > 1}
    others = [block for place, block in enumerate(content_of(message.native)) if place not in results]
    return sum(len(json.dumps(block)) for block in others)


def has_long_breakpoint(blocks: Any) -> bool:
    """Whether one of these blocks has a breakpoint that keeps the cache for an hour."""
    marks = [block.get(BREAKPOINT_KEY) for block in blocks if isinstance(block, dict)] if blocks else []
    return any(isinstance(mark, dict) and mark.get("ttl") == "1h" for mark in marks)


def output_sha256(text: str) -> str:
    """The SHA-256 of an output's text, as it is recorded with the output."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def is_thinking(block: Any) -> bool:
    """Whether a block is the model's thinking, readable or redacted."""
    return isinstance(block, dict) and block.get("type") in THINKING


def plain_text_of(content: Any) -> str | None:
    """The text of a tool result; None if it contains anything but text, which a placeholder must not hide."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return None
    texts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", "output_text"):
            return None
        if not isinstance(part.get("text"), str):
            return None
        texts.append(part["text"])
    return "\n".join(texts)
