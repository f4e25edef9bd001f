"""Replies and messages as programs hold them: the objects of a provider's SDK, or dictionaries, as plain JSON.

    response = client.chat.completions.create(messages=request.messages, **request.options)
    messages += session.reply(response)  # or response.model_dump(), or one message of the assistant

A reply is recorded as a list of messages: with Responses and Gemini it can be several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from contextstash.messages.base import MAX_LEVELS
from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

REPLY_ONLY_KEYS = frozenset({"parsed", "parsed_arguments", "parsed_output"})
"""Keys that the SDKs' own parsing adds to replies; no provider knows them."""

NULLABLE = frozenset({"code", "outputs", "result"})
"""Keys of items of Responses that may be null, but not missing: of code that was run, and of an image."""

CONTENT_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_use", "server_tool_use"})
"""Types of the content blocks of an Anthropic Message; no item of Responses has one of these."""

_EXPECTED = (
    "reply is the provider's response, as its SDK returns it or as a dictionary: a Message of Anthropic, a"
    " ChatCompletion, a Response, a GenerateContentResponse, or one message of the assistant. Pass the whole response,"
    " not a part of it, and a streamed one once it is complete."
)


def read_reply(reply: object) -> tuple[list[Native], Mapping[str, Any] | None]:
    """The messages of a response, to be recorded, and the usage that the provider reported with it. Raises
    BadInputError if it is none that is known."""
    data = as_json(reply)
    if isinstance(data, dict):
        usages = (data.get(key) for key in ("usage", "usageMetadata", "usage_metadata"))
        usage = next((each for each in usages if isinstance(each, dict)), None)
        return [as_said(native) for native in _messages(data)], usage
    if not isinstance(data, list) or any(
        not isinstance(item, dict) or ("role" not in item and item.get("type") in CONTENT_BLOCKS) for item in data
    ):
        raise BadInputError(_EXPECTED)
    return [as_said(item) for item in data], None


def _messages(data: Native) -> list[Native]:
    for choices, key in (("choices", "message"), ("candidates", "content")):
        if isinstance(found := data.get(choices), list):
            message = found[0].get(key) if found and isinstance(found[0], dict) else None
            if not isinstance(message, dict):
                raise BadInputError(f"This reply has no {key}: there is nothing to record.")
            return [message]
    if isinstance(data.get("output"), list):
        return [item for item in data["output"] if isinstance(item, dict)]
    if data.get("role") not in ("assistant", "model"):
        raise BadInputError(_EXPECTED)
    # An item of Responses has `type: message` too, but comes in a list.
    return [{key: data[key] for key in data if data.get("type") != "message" or key in ("role", "content")}]


def as_natives(messages: Iterable[object]) -> list[Native]:
    """A program's message list in plain JSON; a message that is that already stays itself. The model's replies are
    brought into one form: the list holds them as the program appended them, the session as they came, and both must be
    equal. Raises BadInputError if it is something else than a list of messages."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        expected = "messages is the list of all messages of the conversation: [{'role': 'user', 'content': 'Hello'}]"
        raise BadInputError(f"{expected}, not a {type(messages).__name__}.")
    natives = []
    for place, message in enumerate(messages):
        native = as_json(message)
        if not isinstance(native, dict):
            expected = "expected a dictionary or an object of an SDK"
            hint = "; session.reply returns a list: messages += await session.reply(reply)"
            raise BadInputError(f"Message {place} is a {type(message).__name__}: {expected}{hint}.")
        role = native.get("role")
        if role is None:  # an item of Responses
            role = "user" if str(native.get("type", "")).endswith("_output") else "assistant"
        natives.append(as_said(native) if role in ("assistant", "model") else native)
    return natives


def as_said(native: Native) -> Native:
    """A message of the model in the form that its provider takes it back in; itself if it is in that form."""
    changed: dict[str, Any] = {}
    for key in ("content", "parts", "tool_calls"):
        if isinstance(native.get(key), list):
            said = [_part(part) for part in native[key]]
            if any(new is not old for new, old in zip(said, native[key], strict=True)):
                changed[key] = said
    content = changed.get("content", native.get("content"))
    if isinstance(content, list) and "type" not in native and (text := _text_alone(content)) is not None:
        changed["content"] = text
    return _in_order({**native, **changed} if changed else native)


def _part(part: object) -> object:
    """A content block, or a tool call, in the form in which it is sent back."""
    if not isinstance(part, dict):
        return part
    function = part.get("function")
    if isinstance(function, dict):
        bare = {key: value for key, value in part.items() if key != "index"} if "index" in part else part
        ordered = _in_order(function)
        part = bare if ordered is function else {**bare, "function": ordered}
    return _in_order(part)


def _text_alone(content: Sequence[object]) -> str | None:
    """The text of content that is one plain text: providers take it as a string too."""
    part = content[0] if len(content) == 1 else None
    if not isinstance(part, dict) or part.keys() != {"type", "text"} or part["type"] != "text":
        return None
    return part["text"] if isinstance(part["text"], str) else None


def _in_order(values: dict[str, Any]) -> dict[str, Any]:
    """In the order of the names, without nulls and empty annotations of a message, which some SDKs add and others leave
    out; itself if it is so."""
    left_out = {*REPLY_ONLY_KEYS, *({"annotations"} if "type" not in values and not values.get("annotations") else ())}
    given = (key for key in sorted(values, key=str) if values[key] is not None or key in NULLABLE)
    kept = {key: values[key] for key in given if key not in left_out}
    return values if list(kept) == list(values) else kept


def as_json(value: object, level: int = 0) -> Any:
    """The value with the SDK's objects in it as JSON. Values that are plain already are not copied, nor are those below
    the deepest level that can be recorded."""
    if level > MAX_LEVELS or value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, dict):
        made = ((key, child, as_json(child, level + 1)) for key, child in value.items())
        changed = {key: plain for key, child, plain in made if plain is not child}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        children = [as_json(child, level + 1) for child in value]
        return children if any(new is not old for new, old in zip(children, value, strict=True)) else value
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        plain, given = (dump(mode="json", by_alias=True, **{name: True}) for name in ("exclude_none", "exclude_unset"))
        return _with_nulls(plain, given)
    return value


def _with_nulls(plain: Any, given: Any) -> Any:
    """An object's values that are not null, with the nulls that the provider gave: the title of a cited document may be
    null, but not missing."""
    if isinstance(plain, dict) and isinstance(given, dict):
        keys = dict.fromkeys((*given, *plain))
        return {key: _with_nulls(plain[key], given.get(key)) if key in plain else given[key] for key in keys}
    if isinstance(plain, list) and isinstance(given, list):
        return [_with_nulls(each, other) for each, other in zip(plain, given, strict=True)]
    return plain
