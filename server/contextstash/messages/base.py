"""What formats are made of: their interface, the pieces of a message as they are read, with clear errors if the JSON is
wrong, the main argument of a call, the usage of tokens as any provider reports it, and which values JSON brings back
equal."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from contextstash.safety.sanitize import encodable
from contextstash_storage.errors import BadInputError, BadMessageError
from contextstash_storage.records import Block, BlockType, Native, Role, Usage

Path = tuple[str | int, ...]
"""The way to a value: keys of objects and indexes of arrays, from outside to inside."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The contents of a native message. `texts[i]` is the readable text of `blocks[i]`, and `paths[i]` the way to the
    value that can be replaced by another text, empty if there is none. The blocks have no token counts yet: a counter
    adds them. `group` is the provider's id of the reply that the message belongs to."""

    role: Role
    blocks: tuple[Block, ...]
    texts: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    usage: Usage | None = None
    model: str | None = None
    group: str | None = None


@dataclass(slots=True, eq=False)
class Call:
    """A tool call in a part. `keys` are what a result may name it by, the best first; `native` is its JSON; `by_order`
    says that only their order distinguishes its result from others."""

    keys: tuple[str, ...]
    native: Mapping[str, Any]
    by_order: bool = False


@dataclass(slots=True, eq=False)
class Part:
    """A part of a message as it is sent: a content block, or a whole message in a format with one result a message.

    `source` is the message that it was in, `reply` the provider's id of the reply. `answers` are what it names its call
    by if it is a result, the best first. `thinks` says that something of the model has to follow it; `begins`, that a
    list may begin with it although the model wrote it; `instructs`, that it is of a system message. `asks` is the id of
    a call that the provider answers itself, `gets` that of the call that such a result answers, and `caller` that of
    the one that made a call."""

    native: Native
    by_model: bool
    source: Native = field(default_factory=dict)
    reply: str | None = None
    calls: tuple[Call, ...] = ()
    answers: tuple[str, ...] = ()
    thinks: bool = False
    begins: bool = False
    instructs: bool = False
    asks: str | None = None
    gets: str | None = None
    caller: str | None = None


class Format(ABC):
    """One provider's wire format. All methods are pure and never change their arguments."""

    name: str
    own_keys: frozenset[str]
    """Members of messages that no other format has."""
    schema_key = "parameters"
    """The member of a tool's definition that holds the schema of its arguments."""

    usage_keys: tuple[str, ...] = ("usage",)
    model_keys: tuple[str, ...] = ("model",)
    group_keys: tuple[str, ...] = ("id",)
    """Where a message has its usage, its model, and the id of its reply; the first one counts."""

    def read(self, native: Native) -> Reading:
        """The contents of the message. Raises BadMessageError, which names the wrong field and what it should be."""
        role, pieces = self.pieces(need_object(native, "the message"))
        keys = (self.usage_keys, self.model_keys, self.group_keys)
        usage, model, group = (next((native[key] for key in each if native.get(key)), None) for each in keys)
        return Reading(
            role=role,
            blocks=tuple(each.block for each in pieces),
            texts=tuple(each.text for each in pieces),
            paths=tuple(each.path for each in pieces),
            usage=read_usage(usage) if isinstance(usage, Mapping) else None,
            model=name_of(model),
            group=name_of(group) if role == "assistant" else None,
        )

    @abstractmethod
    def pieces(self, native: Mapping[str, Any]) -> tuple[Role, list[Piece]]:
        """The role of the message, and what is in it. Raises BadMessageError."""

    def is_own(self, native: Native) -> bool:
        """Whether a message that this format can read has something that no other format has."""
        content = native.get("content")
        parts = content if isinstance(content, list) else ()
        return not self.own_keys.isdisjoint(native) or any(map(self.is_own_part, parts))

    def is_own_part(self, part: Mapping[str, Any]) -> bool:
        """Whether no other format has such a part."""
        return False

    def misfit(self, native: Native) -> BadMessageError | None:
        """Why this format cannot read the message; None if it can."""
        try:
            self.read(native)
        except BadMessageError as error:
            return error
        return None

    def replace(self, native: Native, texts: Mapping[int, str]) -> Native:
        """A copy with the content of the tool results at these block indexes, including the media nested in them,
        replaced by the texts. Everything else, including ids and error flags, is unchanged. Raises BadInputError if
        the block at an index is not a tool result that a text can replace."""
        paths = self.read(native).paths if texts else ()
        changed = dict(native)
        for index, text in texts.items():
            path = paths[index] if index < len(paths) else ()
            if not path:
                raise BadInputError(f"Block {index} of this message is not a tool result that can be replaced.")
            changed = _replaced(changed, path, partial(self.in_place_of, native, text))
        return changed

    def in_place_of(self, native: Native, text: str, old: Any) -> Any:
        """The value that stands for the text in place of `old`, which a path of the message's reading leads to."""
        return [{"type": "text", "text": text}] if isinstance(old, list) else text

    @abstractmethod
    def without_thinking(self, native: Native) -> Native | None:
        """A copy without the model's thinking, if the provider allows it to be omitted; None if the message contains
        nothing else."""

    def user_message(self, text: str) -> Native:
        """A message of the user with this text alone."""
        return {"role": "user", "content": text}

    def system_message(self, text: str) -> Native | None:
        """A system message for the start of the list; None if the provider takes the system prompt in another field."""
        return None

    def limit_breakpoints(self, natives: Sequence[Native]) -> Sequence[Native]:
        """The natives with as many of the newest cache breakpoints as their request may have."""
        return natives

    @abstractmethod
    def sent_parts(self, native: Native) -> Sequence[Part]:
        """What of a message can be sent, by the rules for a single message. Its other parts are left out, or are text
        if a message of that role may not hold them."""

    @abstractmethod
    def missing(self, call: Call) -> Native | None:
        """The result of an interrupted call; None if nothing can stand for it, so that the call is left out."""

    @abstractmethod
    def orphan(self, part: Part) -> Sequence[Native]:
        """What is shown of a result without its call: its text, images and documents."""

    def fitted(self, result: Native, call: Call) -> Native:
        """The result in the form that this call requires."""
        return result

    def joined(self, messages: Sequence[Sequence[Part]]) -> list[Native]:
        """The messages as they are sent, each of its parts."""
        return [part.native for parts in messages for part in parts]

    def tool_definitions(self, tools: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Tools, each with its name, description and schema, as they are put among the tools of a request."""
        return tools


def in_shape_of(source: Native, values: Native) -> Native:
    """These members in the order of the message that they come from: that one itself, if it is equal."""
    if len(source) == len(values) and source == values:
        return source
    return {key: values[key] for key in (*source, *values) if key in values}


def _replaced(value: Any, path: Path, change: Callable[[Any], Any]) -> Any:
    """A copy with the value at a path changed; a key at its end may be missing."""
    if not path:
        return change(value)
    if isinstance(value, dict):
        return {**value, path[0]: _replaced(value.get(path[0]), path[1:], change)}
    return [_replaced(item, path[1:], change) if place == path[0] else item for place, item in enumerate(value)]


class Piece(NamedTuple):
    """A block, its readable text, and the way to the value that can be replaced by another text."""

    block: Block
    text: str
    path: Path = ()


def piece(
    block_type: BlockType,
    text: str = "",
    *,
    call_id: str | None = None,
    tool: str | None = None,
    argument: str | None = None,
    is_error: bool = False,
) -> Piece:
    """A block of this type and its text; names and ids are made storable."""
    block = Block(
        type=block_type,
        size=len(text),
        call_id=call_id and encodable(call_id),
        tool=tool and encodable(tool),
        argument=argument and encodable(argument),
        is_error=is_error,
    )
    return Piece(block, text)


def call_piece(call_id: str | None, tool: str, arguments: object) -> Piece:
    """A tool call; its text is the arguments as JSON, unchanged if they are text already."""
    text = arguments if isinstance(arguments, str) else as_json(arguments)
    return piece("tool_call", text, call_id=call_id, tool=tool, argument=main_argument(arguments))


def result_pieces(
    call_id: str, parts: Iterable[Piece], path: Path, *, tool: str | None = None, is_error: bool = False
) -> list[Piece]:
    """One tool result with the text of all its parts, then the images and documents nested in it, each with the
    result's call id. `path` leads to all of its content."""
    texts: list[str] = []
    nested: list[Piece] = []
    for part in parts:
        if part.block.type in ("image", "document"):
            nested.append(Piece(part.block.model_copy(update={"call_id": encodable(call_id)}), part.text))
        else:
            texts.append(part.text)
    result = piece("tool_result", "\n".join(texts), call_id=call_id, tool=tool, is_error=is_error)
    return [result._replace(path=path), *nested]


def opaque(native: Mapping[str, Any], call_id: str | None = None) -> Piece:
    """A block that contextstash doesn't interpret; its text is its JSON."""
    return piece("opaque", as_json(native), call_id=call_id)


def name_of(value: object) -> str | None:
    """A name or an id, made storable; None if the value is not a text, or empty."""
    return encodable(value) if isinstance(value, str) and value else None


def as_json(value: object) -> str:
    """Compact JSON in the same key order. Raises BadMessageError if the value cannot be written as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadMessageError("the message is nested too deeply for JSON.") from error
    except (TypeError, ValueError) as error:
        raise BadMessageError(f"the message cannot be written as JSON: {error}.") from error


@dataclass(frozen=True)
class PartKinds:
    """The parts that a format's content has, by their `type`: those with text, and the field that holds it; images;
    documents and sounds, and what of them can be read. `foreign` ones belong to another format, and are refused:
    as unknown parts they would hide tool calls from every rule. Any other part is opaque."""

    texts: Mapping[str, str]
    images: Collection[str]
    documents: Mapping[str, Callable[[Mapping[str, Any]], str]]
    foreign: Callable[[str], bool] = lambda kind: False

    def read(self, content: object, where: str = "content") -> list[Piece]:
        """The pieces of a string, or of a list of parts."""
        return [self.read_part(part, kind, place) for part, kind, place in self.parts(content, where)]

    def parts(self, content: object, where: str = "content") -> list[tuple[Mapping[str, Any], str, str]]:
        """Each part with its type and where it stands; a string is one part with text. Raises BadMessageError."""
        if isinstance(content, str):
            return [({"type": "text", "text": content}, "text", where)] if content else []
        if not isinstance(content, list):
            raise BadMessageError(f"{where} is {kind_of(content)}; expected a string or a list of parts.")
        found = []
        for index, value in enumerate(content):
            place = f"{where}[{index}]"
            part = need_object(value, place)
            kind = need_text(part, "type", place)
            if self.foreign(kind):
                raise BadMessageError(f"{place} is a '{kind}' of another format. Record it in its own format.")
            found.append((part, kind, place))
        return found

    def read_part(self, part: Mapping[str, Any], kind: str, where: str) -> Piece:
        """The piece of one part."""
        if kind in self.texts:
            return piece("text", need_text(part, self.texts[kind], where))
        if kind in self.images:
            return piece("image")
        if kind in self.documents:
            return piece("document", self.documents[kind](part))
        return opaque(part)

    def left_of(self, content: object, text_kind: str = "text") -> list[Native]:
        """What is shown of a result's content without its call: its text, in one part, then images and documents."""
        parts = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
        media = [each for each in parts if each.get("type") in (*self.images, *self.documents)]
        texts = [content] if isinstance(content, str) else []
        for each in parts:
            if each not in media:
                text = each.get("text")
                texts.append(text if isinstance(text, str) else as_json(each))
        text = orphan_text("\n".join(texts))
        return [*([{"type": text_kind, "text": text}] if text else []), *media]


def orphan_text(text: str) -> str:
    """The text that stands for a result whose tool call has left the list."""
    return f"[Result of a tool call that is no longer shown]\n{text}" if text.strip() else ""


def need_object(value: object, where: str) -> Mapping[str, Any]:
    """The value. Raises BadMessageError if it is not a JSON object."""
    if not isinstance(value, dict):
        raise BadMessageError(f"{where} is {kind_of(value)}; expected an object.")
    return value


def need_text(native: Mapping[str, Any], key: str, where: str, *, empty: bool = True) -> str:
    """The string at `key`. Raises BadMessageError if it is not a string, or empty although `empty` is false."""
    value = native.get(key)
    if not isinstance(value, str):
        raise BadMessageError(f"{where}.{key} is {kind_of(value)}; expected a string.")
    if not value and not empty:
        raise BadMessageError(f"{where}.{key} is empty.")
    return value


def need_role(native: Mapping[str, Any], roles: Mapping[str, Role], expected: str) -> Role:
    """The message's role. Raises BadMessageError if it is none of these; `expected` names them for a reader."""
    role = native.get("role")
    if isinstance(role, str) and role in roles:
        return roles[role]
    shown = f"'{role[:40]}'" if isinstance(role, str) else kind_of(role)
    raise BadMessageError(f"role is {shown}; expected {expected}.")


def kind_of(value: object) -> str:
    """The type of a JSON value, for a message."""
    return "missing or null" if value is None else f"of type {type(value).__name__}"


# The main argument of a tool call: one line that identifies the call for a reader.

MAX_ARGUMENT = 120
"""Length of a main argument, in characters: one line of a terminal."""

MAIN_NAMES = (
    "file_path", "path", "command", "cmd", "query", "pattern", "url", "filename", "file", "notebook_path", "uri",
    "script", "code", "skill", "description", "name", "id",
)  # fmt: skip
"""The names of arguments that can be the main one, in order of preference."""

_PATCHED_FILE = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (.+)$", re.MULTILINE)
_SHELL_WRAPPER = re.compile(r"^(?:\S*/)?(?:ba|z|da|)sh -l?c$")


def main_argument(arguments: object) -> str | None:
    """The main argument in one line of at most 120 characters, or None.

    `arguments` is an object, an object as JSON text, or free text. Free text is joined to one line; for a patch, the
    result is the first file that it changes.
    """
    if isinstance(arguments, str):
        arguments = parsed(arguments)
    if isinstance(arguments, str):
        patched = _PATCHED_FILE.search(arguments)
        return _one_line(patched.group(1) if patched else arguments)
    if not isinstance(arguments, Mapping):
        return None
    for name in MAIN_NAMES:
        if text := _as_line(arguments.get(name)):
            return text
    texts = (value for value in arguments.values() if isinstance(value, str))
    return _one_line(next((text for text in texts if text.strip() and len(text) <= MAX_ARGUMENT), ""))


def parsed(text: str) -> object:
    """The JSON object that a text writes, such as the arguments of a call; the text itself if it writes none."""
    if not text.lstrip().startswith("{"):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _as_line(value: object) -> str | None:
    if isinstance(value, list | tuple) and all(isinstance(word, str) for word in value):
        is_wrapped = len(value) == 3 and _SHELL_WRAPPER.match(" ".join(value[:2]))
        value = " ".join(value[2:] if is_wrapped else value)
    return _one_line(value) if isinstance(value, str) else None


def _one_line(text: str) -> str | None:
    line = " ".join(text[: 20 * MAX_ARGUMENT].split())
    if not line:
        return None
    return line if len(line) <= MAX_ARGUMENT else line[: MAX_ARGUMENT - 1] + "…"


# Usage.

_MAX_COUNT = 2**53
"""Larger numbers are not token counts, and not all JSON parsers represent them exactly (IEEE 754 doubles)."""

_FIELDS = {
    "prompt_tokens": "promptTokenCount prompt_token_count prompt_tokens input_tokens",
    "completion_tokens": "candidatesTokenCount candidates_token_count completion_tokens output_tokens",
    "reasoning_tokens": (
        "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens reasoning_output_tokens"
        " reasoning_tokens"
    ),
    "cached_tokens": (
        "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens cached_input_tokens"
        " prompt_cache_hit_tokens cachedContentTokenCount cached_content_token_count cache_read_input_tokens"
        " cached_tokens"
    ),
    "cache_write_tokens": (
        "prompt_tokens_details.cache_write_tokens input_tokens_details.cache_write_tokens cache_creation_input_tokens"
        " cache_write_tokens"
    ),
    "cache_write_1h_tokens": "cache_creation.ephemeral_1h_input_tokens cache_write_1h_tokens",
}
"""By field of a Usage, those of Gemini (as the REST API and the SDK spell them), Chat Completions (with DeepSeek's),
Responses, Codex, Anthropic and contextstash itself: the first one counts that is not 0. Left out is Gemini's
`toolUsePromptTokenCount`: what the provider's own tools added for this one request is not in the contents of the next.
"""


def read_usage(data: Mapping[str, Any]) -> Usage | None:
    """The usage in the form of any provider; None if it has none.

    Anthropic does not include cached tokens in `input_tokens`; all others do. Gemini counts the thoughts of a reply
    apart from it. A prompt of 0 tokens is not a report: Claude Code writes it on replies that it generates without a
    model.
    """
    counts = {name: _count(data, places) for name, places in _FIELDS.items()}
    if "prompt_tokens" not in data and ("cache_read_input_tokens" in data or "cache_creation_input_tokens" in data):
        counts["prompt_tokens"] += counts["cached_tokens"] + counts["cache_write_tokens"]
    counts["completion_tokens"] += _count(data, "thoughtsTokenCount thoughts_token_count")
    return Usage(**counts) if counts["prompt_tokens"] > 0 else None


def with_cache(usage: Usage, read: int, written: int, *, long: bool = False) -> Usage:
    """The usage with so many tokens read from the cache and written to it; of these, the same share is kept for an hour
    as in the usage, or all of them or none (`long`) if that wrote nothing."""
    before = usage.cache_write_tokens
    share = usage.cache_write_1h_tokens / before if before else float(long)
    kept = {"cache_write_tokens": written, "cache_write_1h_tokens": round(written * share)}
    return usage.model_copy(update={"cached_tokens": read, **kept})


def reported_usage(data: object) -> Usage:
    """The usage that a caller passes. Raises BadInputError if it has no known form."""
    usage = read_usage(data) if isinstance(data, Mapping) else None
    if usage is None:
        raise BadInputError(
            "usage must be as the provider reported it: {'input_tokens': …, 'output_tokens': …},"
            " {'prompt_tokens': …, 'completion_tokens': …} or {'promptTokenCount': …, 'candidatesTokenCount': …}."
        )
    return usage


def _count(data: Mapping[str, Any], places: str) -> int:
    """The first count at these places, each a field, or a field inside another one; 0 if there is none."""
    for place in places.split():
        outer, _, inner = place.partition(".")
        value = data.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT:
            return value
    return 0


# Which values JSON brings back equal.

MAX_LEVELS = 200
"""Levels of nesting allowed in a value; Python's JSON reader and writer fail at about 900."""

MAX_BITS = 14_281
"""Bits of a whole number: 4,299 digits, as Python writes and reads no number of more than 4,300."""


class NotJsonError(ValueError):
    """A value that JSON cannot bring back equal. The text continues a sentence: it says what the value holds."""


def check_json(value: object, level: int = 0) -> int:
    """The number of characters in the strings of a JSON value. Raises NotJsonError if it is not one."""
    kind = type(value)
    if kind is str:
        return len(value)  # type: ignore[arg-type]
    if isinstance(value, dict | list):
        if level >= MAX_LEVELS:
            raise NotJsonError(f"is nested more than {MAX_LEVELS} levels deep; flatten it.")
        if isinstance(value, list):
            return sum([check_json(child, level + 1) for child in value])
        for key in value:
            if not isinstance(key, str):
                raise NotJsonError(f"holds a key of type {type(key).__name__}; in JSON, keys are strings.")
        return sum([check_json(child, level + 1) for child in value.values()])
    if value is not None and kind is not bool:
        _check_scalar(value)
    return 0


def _check_scalar(value: object) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise NotJsonError(f"holds {value}, which is not a number in JSON; write it as a string or null.")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotJsonError("holds a whole number of over 4,299 digits; write it as a string.")
    if not isinstance(value, str | int | float):
        name = type(value).__name__
        raise NotJsonError(f"holds a value of type {name}, which JSON does not have; pass a list, a dict or a string.")
