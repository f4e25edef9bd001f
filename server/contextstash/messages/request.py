"""A request to a model API as text: where its messages stand in the JSON, what they say, and edits of that text:
tool results replaced, messages replaced by a summary, and not a byte more.

    request = read_request("anthropic", body, before)
    body[slice(*request.spans[3])] == request.messages[3].raw
    shorter = edited(request, {3: {("content", 0, "content"): "[left out]"}})

A text that is parsed and dumped again is another text: escapes, key order, numbers, duplicate keys and white space
change, and with them signatures and the provider's prompt cache. So values are found by position, and spliced. The body
is read in Latin-1, one character for each byte, by Python's own decoder: JSON's own signs are ASCII, and in UTF-8 no
other character has a byte of theirs. A message that stands where it stood in the request before is not read again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar, cast

from contextstash.messages.anthropic import THINKING, content_of, without_breakpoints
from contextstash.messages.base import Path
from contextstash.messages.detection import get_format
from contextstash.messages.openai import is_input, item_type
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Native

LIST_KEYS = {"anthropic": "messages", "openai-chat": "messages", "openai-responses": "input"}
"""The member of a request that holds its messages, by format."""

SERVER_STATE_KEYS = ("previous_response_id", "conversation")
"""Fields of a Responses request that continue a conversation stored by OpenAI."""

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
        found: list[ToolResult] = []
        for block, path in zip(read.blocks, read.paths, strict=True):
            if not path or not block.call_id:
                continue
            holder: Any = reduce(lambda value, step: value[step], path[:-1], cast(Any, self.native))
            content = holder.get(path[-1])  # None if it is missing
            text = _plain_text(content)
            if text is None:
                found.append(ToolResult(block.call_id, path, content))
                continue
            digest = sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
            written = json.dumps(text, ensure_ascii=self.raw.isascii()).encode("utf-8", "surrogatepass")
            found.append(ToolResult(block.call_id, path, content, text, digest, len(written)))
        return tuple(found)

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
    """Read the body of a request. `before` is an earlier request of the same session: a message that stands there in
    the same place is taken over. Its bytes are a whole message, since an object ends with its last brace, so that no
    longer one begins with them.

    Raises ValueError, of which JsonPositionError is one kind, if the body is not a JSON object with a list of messages,
    or has a member twice: parsers differ in which of two equal keys counts.
    """
    text = body.decode("latin-1")
    known = before.messages if before is not None and before.format == format_name else ()
    messages: list[TextMessage] = []
    spans: list[Span] = []

    def message_at(place: str | int, at: int) -> Span:
        number = len(messages)
        is_known = number < len(known) and body.startswith(known[number].raw, at)
        messages.append(known[number] if is_known else _message_at(body, text, at, format_name))
        return Span(at, at + len(messages[-1].raw))

    def member_at(name: str | int, at: int) -> Span:
        if name != LIST_KEYS[format_name] or text[at : at + 1] not in ("[", '"'):
            return value_at(text, at)
        is_text = text[at] == '"'
        listed = [(0, message_at(0, at))] if is_text else items(text, at, message_at)
        spans.extend(span for _, span in listed)
        last = spans[-1].end if spans else at + 1
        return Span(at, last if is_text else skip_space(text, last) + 1)

    start = end = skip_space(text, 0)
    fields: dict[str, Span] = {}
    for key, value in items(text, start, member_at):
        if key in fields:
            raise JsonPositionError(f"the member '{key}' is there twice")
        fields[str(key)] = value
        end = value.end
    closing = skip_space(text, end)
    if text[closing : closing + 1] != "}" or skip_space(text, closing + 1) != len(body):
        raise JsonPositionError("something follows the request's object")
    if not messages:
        raise JsonPositionError(f"no list of messages in '{LIST_KEYS[format_name]}'")
    if not body.isascii():
        body.decode("utf-8", "surrogatepass")  # raises if it is not text
    return RequestText(format_name, body, tuple(messages), tuple(spans), fields)


def _message_at(body: bytes, text: str, at: int, format_name: str) -> TextMessage:
    raw = body[at : value_at(text, at).end]
    native = json.loads(raw.decode("utf-8", "surrogatepass"))
    if isinstance(native, str) and format_name == "openai-responses":  # `input` may be the user's text alone
        native = {"role": "user", "content": native}
    if not isinstance(native, dict):
        raise JsonPositionError(f"the message at byte {at} is not an object")
    return TextMessage(raw, native, format_name)


def is_models(native: Native) -> bool:
    """Whether the model wrote a message: one of the assistant, or another item of a reply of the Responses API."""
    role = native.get("role")
    return role == "assistant" or (role is None and not is_input(native, item_type(native)))


def message_of(native: Native, format_name: str) -> TextMessage:
    """A message that stands in no request."""
    return TextMessage(json.dumps(native).encode("utf-8", "surrogatepass"), native, format_name)


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


Texts = Mapping[int, Mapping[Path, str]]
"""What is sent in place of tool results: by the place of the message, and the path of the result in it."""


@dataclass(frozen=True, slots=True)
class SummaryOf:
    """The messages `first` to `last` (included) are sent as one message of the user with this text."""

    first: int
    last: int
    text: str


def edited(request: RequestText, texts: Texts, summaries: Sequence[SummaryOf] = ()) -> bytes:
    """The body with these edits. Raises JsonPositionError if a place is not what the edit expects."""
    hidden = {place for summary in summaries for place in range(summary.first, summary.last + 1)}
    splices = [splice for summary in summaries for splice in _summary(request, summary)]
    for place, replaced in texts.items():
        if place not in hidden:
            message = request.messages[place]
            made: list[Splice] = []
            for each in message.results:
                if each.path in replaced:  # in the shape that the content had
                    new = get_format(message.format).in_place_of(message.native, replaced[each.path], each.content)
                    made.append(Splice(message.span(each.path), dumped(new)))
            splices += _moved(made, request.spans[place].start)
    return spliced(request.body, splices) if splices else request.body


def _moved(splices: Sequence[Splice], by: int) -> list[Splice]:
    return [Splice(Span(span.start + by, span.end + by), new) for span, new in splices]


def _summary(request: RequestText, summary: SummaryOf) -> list[Splice]:
    """The summary as a message of the user, or as the beginning of the user's message that follows: Anthropic's
    messages alternate."""
    start, end = request.spans[summary.first].start, request.spans[summary.last].end
    following = summary.last + 1
    if request.format == "anthropic" and request.messages[following].native.get("role") == "user":
        after = request.spans[following].start
        inserted = _moved(_with_text(request.messages[following], summary.text), after)
        return [Splice(Span(start, after), b""), *inserted]
    return [Splice(Span(start, end), dumped(get_format(request.format).user_message(summary.text)))]


def _with_text(message: TextMessage, text: str) -> list[Splice]:
    """A text block in front of a message's content, which keeps its bytes."""
    content, block = message.span(("content",)), dumped({"type": "text", "text": text})
    if message.raw[content.start : content.start + 1] == b"[":
        at = content.start + 1
        return [Splice(Span(at, at), block + b"," if content_of(message.native) else block)]
    before, after = Span(content.start, content.start), Span(content.end, content.end)
    return [Splice(before, b"[" + block + b',{"type":"text","text":'), Splice(after, b"}]")]


# Positions of values in a JSON text, by its bytes.


class Span(NamedTuple):
    """The bytes `start` to `end` (not included) of a text."""

    start: int
    end: int


class Splice(NamedTuple):
    """Bytes that replace a span of a text."""

    span: Span
    replacement: bytes


class JsonPositionError(ValueError):
    """The text is not JSON at this position, or not the JSON that was expected there."""


_SPACE = re.compile(r"[ \t\n\r]*")
_DECODER = json.JSONDecoder()


def skip_space(text: str, at: int) -> int:
    """The position of the next character that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def value_at(text: str, at: int) -> Span:
    """The span of the value that begins at `at`. Raises JsonPositionError if none does."""
    try:
        return Span(at, _DECODER.raw_decode(text, at)[1])
    except (ValueError, RecursionError) as error:
        raise JsonPositionError(f"no value at byte {at}") from error


def items(
    text: str, at: int, measure: Callable[[str | int, int], Span] | None = None
) -> Iterator[tuple[str | int, Span]]:
    """The values in the object or the array that begins at `at`, each with its key or its index, in order; of equal
    keys all. `measure` finds the span of a value by its key or index and its position in place of `value_at`, for a
    caller that knows parts of them already. Raises JsonPositionError."""
    closing = {"{": "}", "[": "]"}.get(text[at : at + 1])
    if closing is None:
        raise JsonPositionError(f"an object or an array expected at byte {at}")
    at, place = skip_space(text, at + 1), 0
    while text[at : at + 1] != closing or place:
        key: str | int = place
        if closing == "}":
            name = value_at(text, at)
            colon = skip_space(text, name.end)
            if text[at] != '"' or text[colon : colon + 1] != ":":
                raise JsonPositionError(f"no member at byte {at}")
            key, at = json.loads(text[at : name.end]), skip_space(text, colon + 1)
        value = measure(key, at) if measure else value_at(text, at)
        yield key, value
        at, place = skip_space(text, value.end), place + 1
        if text[at : at + 1] == closing:
            return
        if text[at : at + 1] != ",":
            raise JsonPositionError(f"a comma or {closing} expected at byte {at}")
        at = skip_space(text, at + 1)


def find(text: str, at: int, path: Path) -> Span:
    """The span of the value at a path. Raises JsonPositionError if it does not exist, or if a key on the way is there
    twice: parsers differ in which of the two counts."""
    span = value_at(text, at)
    for step in path:
        found = [value for key, value in items(text, span.start) if key == step]
        if len(found) != 1:
            raise JsonPositionError(f"{len(found)} values of {step!r} at byte {span.start}")
        span = found[0]
    return span


def spliced(text: bytes, splices: Sequence[Splice]) -> bytes:
    """The text with these spans replaced; every other byte is unchanged. Raises JsonPositionError if two overlap."""
    parts: list[bytes] = []
    at = 0
    for span, replacement in sorted(splices):
        if span.start < at:
            raise JsonPositionError(f"two edits overlap at byte {span.start}")
        parts += (text[at : span.start], replacement)
        at = span.end
    parts.append(text[at:])
    return b"".join(parts)


def dumped(value: object) -> bytes:
    """A new value as compact JSON, in ASCII: no surrogate or control character can make the body invalid."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")
