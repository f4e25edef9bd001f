"""Large parts of a message other than tool results: the large texts in the input of a tool call, and images.

Each can be left out so that the message stays valid: the call keeps its id, its name and the shape of its input, and a
text stands for the image.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from contextstash.formats.breakpoints import BREAKPOINT_KEY
from contextstash.formats.json_positions import Path
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Block, Native

LARGE_CHARACTERS = 800
"""A shorter text of an input stays: about 200 tokens, the room of a few placeholders."""

MAX_DEPTH = 4
"""How deep large texts are looked for in an input. Tools that write are at most three deep: a list of edits."""


@dataclass(frozen=True, slots=True)
class CallInput:
    """The input of a tool call: the id of the call, the path to the input in the message, and its value. `is_encoded`
    says that the message holds it as JSON text."""

    call_id: str
    path: Path
    value: Any
    is_encoded: bool = False

    @property
    def text(self) -> str:
        """Its large texts, as they are read again; each with its name if there are several. Empty if there is none."""
        found = large_texts(self.value)
        if len(found) == 1:
            return found[0][1]
        return "\n\n".join(f"{'.'.join(map(str, path))}:\n{text}" for path, text in found)

    def with_text(self, text: str) -> Any:
        """The value as the message holds it, with this text in place of each large one."""
        value = _shortened(self.value, text, MAX_DEPTH)
        return json.dumps(value, ensure_ascii=False) if self.is_encoded else value


@dataclass(frozen=True, slots=True)
class Image:
    """An image in a message: the path to its block, None if nothing else may stand there, and the block."""

    path: Path | None
    block: Mapping[str, Any]

    @property
    def sha256(self) -> str:
        """The SHA-256 of the block, breakpoints aside."""
        plain = {key: value for key, value in self.block.items() if key != BREAKPOINT_KEY}
        return sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()

    def text_block(self, text: str) -> Native:
        """The text that stands for the image, with the image's breakpoint."""
        kind = "input_text" if self.block.get("type") == "input_image" else "text"
        mark = {BREAKPOINT_KEY: self.block[BREAKPOINT_KEY]} if BREAKPOINT_KEY in self.block else {}
        return {"type": kind, "text": text, **mark}


def large_texts(value: Any) -> list[tuple[Path, str]]:
    """The large texts of an input, with their paths."""
    return list(_large(value, (), MAX_DEPTH))


def _large(value: Any, path: Path, depth: int) -> Iterator[tuple[Path, str]]:
    if isinstance(value, str):
        if len(value) >= LARGE_CHARACTERS:
            yield path, value
    elif depth and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _large(item, (*path, key), depth - 1)


def _shortened(value: Any, text: str, depth: int) -> Any:
    if isinstance(value, str):
        return text if len(value) >= LARGE_CHARACTERS else value
    if depth and isinstance(value, dict):
        return {key: _shortened(item, text, depth - 1) for key, item in value.items()}
    if depth and isinstance(value, list):
        return [_shortened(item, text, depth - 1) for item in value]
    return value


def call_inputs(native: Native, format_name: str) -> list[CallInput]:
    """The inputs of the tool calls that programs answer, in order."""
    if format_name == "anthropic":
        return [
            CallInput(block["id"], ("content", place, "input"), block.get("input"))
            for place, block in enumerate(_parts(native.get("content")))
            if block.get("type") == "tool_use" and isinstance(block.get("id"), str)
        ]
    if format_name == "openai-responses":
        key = {"function_call": "arguments", "custom_tool_call": "input"}.get(str(native.get("type")))
        if key is None or not isinstance(native.get("call_id"), str):
            return []
        return [_openai_input(native["call_id"], (key,), native.get(key), encoded=key == "arguments")]
    calls = _parts(native.get("tool_calls")) if format_name == "openai-chat" else ()
    return [_chat_input(place, call) for place, call in enumerate(calls) if isinstance(call.get("id"), str)]


def _chat_input(place: int, call: Mapping[str, Any]) -> CallInput:
    kind, key = ("custom", "input") if call.get("type") == "custom" else ("function", "arguments")
    inner = call.get(kind)
    value = inner.get(key) if isinstance(inner, dict) else None
    return _openai_input(call["id"], ("tool_calls", place, kind, key), value, encoded=kind == "function")


def _openai_input(call_id: str, path: Path, value: Any, *, encoded: bool) -> CallInput:
    if encoded and isinstance(value, str):
        try:
            return CallInput(call_id, path, json.loads(value), is_encoded=True)
        except (ValueError, RecursionError):
            return CallInput(call_id, path, None)
    return CallInput(call_id, path, value)


def images(native: Native, format_name: str) -> list[Image]:
    """All images of a message, in order, also those within tool results."""
    if format_name == "openai-responses" and native.get("type") == "computer_call_output":
        return [Image(None, {})]
    key = "output" if format_name == "openai-responses" and "output" in native else "content"
    parts = native.get(key)
    return [image for place, part in enumerate(_parts(parts)) for image in _images_of(part, (key, place))]


def _images_of(part: Mapping[str, Any], path: Path) -> Iterator[Image]:
    kind = part.get("type")
    if kind in ("image", "image_url", "input_image", "computer_screenshot"):
        yield Image(None if kind == "computer_screenshot" else path, part)
    elif kind == "tool_result":
        for place, inner in enumerate(_parts(part.get("content"))):
            yield from _images_of(inner, (*path, "content", place))


def _parts(value: Any) -> Sequence[Mapping[str, Any]]:
    return [part if isinstance(part, dict) else {} for part in value] if isinstance(value, list) else ()


def with_parts_replaced(native: Native, format_name: str, blocks: Sequence[Block], texts: Mapping[int, str]) -> Native:
    """The message with these texts in place of the large texts of the calls, and of the images, that its `blocks` at
    these indexes stand for. Raises BadInputError if one is neither."""
    found: dict[int, tuple[Path | None, Any]] = {}
    listed = iter(images(native, format_name))
    inputs = call_inputs(native, format_name)
    for index, block in enumerate(blocks):
        if block.type == "image":
            image = next(listed, None)
            if image is not None and index in texts:
                found[index] = image.path, image.text_block(texts[index])
        elif block.type == "tool_call" and index in texts:
            given = next((each for each in inputs if each.call_id == block.call_id), None)
            found[index] = (given.path, given.with_text(texts[index])) if given else (None, None)
    for index in texts:
        path, value = found.get(index, (None, None))
        if path is None:
            raise BadInputError(
                f"Block {index} of this message is not a tool result, image or call that can be replaced."
            )
        native = _with_value(native, path, value)
    return native


def _with_value(value: Any, path: Path, new: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return new
    if isinstance(value, dict):
        return {**value, path[0]: _with_value(value[path[0]], path[1:], new)}
    at = int(path[0])
    return [_with_value(item, path[1:], new) if place == at else item for place, item in enumerate(value)]
