"""The parts of a message as they are read: blocks, their texts, the ways to these; with clear errors if the JSON is
wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from contextstash.messages.base import Path, Reading
from contextstash.messages.main_argument import main_argument
from contextstash.messages.usage import read_usage
from contextstash_storage.errors import BadMessageError
from contextstash_storage.records import Block, BlockType, Native, Role

TOO_DEEP = "the message is nested too deeply for JSON."

MAX_MEDIA_TEXT = 400
"""In characters. A longer string inside a block of media is taken for encoded data (base64), which a model does not
read as text. That is longer than a URL or a caption."""


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
        call_id=storable(call_id),
        tool=storable(tool),
        argument=storable(argument),
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
            nested.append(Piece(part.block.model_copy(update={"call_id": storable(call_id)}), part.text))
        else:
            texts.append(part.text)
    result = piece("tool_result", "\n".join(texts), call_id=call_id, tool=tool, is_error=is_error)
    return [result._replace(path=path), *nested]


def opaque(native: Mapping[str, Any], call_id: str | None = None) -> Piece:
    """A block that contextstash doesn't interpret; its text is its JSON."""
    return piece("opaque", as_json(native), call_id=call_id)


def opaque_media(native: Mapping[str, Any]) -> Piece:
    """Like `opaque`, with encoded media data left out of the text."""
    try:
        plain = _without_media(native)
    except RecursionError as error:
        raise BadMessageError(TOO_DEEP) from error
    return piece("opaque", as_json(plain))


def _without_media(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_media(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_media(item) for item in value]
    if isinstance(value, str) and len(value) > MAX_MEDIA_TEXT:
        return f"[{len(value)} characters of data]"
    return value


def reading(native: Mapping[str, Any], role: Role, pieces: Iterable[Piece], group: object) -> Reading:
    """A Reading of a message from its pieces; its `model` and `group` are ignored if they are not non-empty strings."""
    pieces = list(pieces)
    usage = native.get("usage")
    return Reading(
        role=role,
        blocks=tuple(each.block for each in pieces),
        texts=tuple(each.text for each in pieces),
        paths=tuple(each.path for each in pieces),
        usage=read_usage(usage) if isinstance(usage, Mapping) else None,
        model=name_of(native.get("model")),
        group=name_of(group),
    )


def name_of(value: object) -> str | None:
    """A name or an id, made storable; None if the value is not a text, or empty."""
    return storable(value) if isinstance(value, str) and value else None


def storable(text: str | None) -> str | None:
    """The text with lone surrogates replaced by escape sequences, so that it can be encoded as UTF-8."""
    if text is None or text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def as_json(value: object) -> str:
    """Compact JSON in the same key order. Raises BadMessageError if the value cannot be written as JSON."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except RecursionError as error:
        raise BadMessageError(TOO_DEEP) from error
    except (TypeError, ValueError) as error:
        raise BadMessageError(f"the message cannot be written as JSON: {error}.") from error


@dataclass(frozen=True)
class PartKinds:
    """The parts that a format's content has, by their `type`: those with text, and the field that holds it; images;
    documents, and what of them can be read; encoded `data`. `foreign` ones belong to another format, and are refused:
    as unknown parts they would hide tool calls from every rule. Any other part is opaque."""

    texts: Mapping[str, str]
    images: Collection[str]
    documents: Mapping[str, Callable[[Mapping[str, Any]], str]]
    data: Collection[str] = ()
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
        return opaque_media(part) if kind in self.data else opaque(part)

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
    """The text that stands for a result whose tool call is no longer in the list."""
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


def role_of(native: Mapping[str, Any]) -> str:
    """The message's role, empty if it has none."""
    role = native.get("role")
    return role if isinstance(role, str) else ""


def need_role(native: Mapping[str, Any], roles: Mapping[str, Role], expected: str) -> Role:
    """The message's role. Raises BadMessageError if it is none of these; `expected` names them for a reader."""
    role = native.get("role")
    if isinstance(role, str) and role in roles:
        return roles[role]
    shown = f"'{role[:40]}'" if isinstance(role, str) else kind_of(role)
    raise BadMessageError(f"role is {shown}; expected {expected}.")


def kind_of(value: object) -> str:
    """The type of a JSON value, in words for a message."""
    if value is None:
        return "missing or null"
    for types, words in _KINDS:
        if isinstance(value, types):
            return words
    return f"a {type(value).__name__}"


_KINDS: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "true or false"),
    ((int, float), "a number"),
    (str, "a string"),
    (list, "a list"),
    (dict, "an object"),
)
