"""Replies and messages as programs hold them: the objects of a provider's SDK, or dictionaries, as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Native

REPLY_ONLY_KEYS = frozenset({"parsed", "parsed_arguments", "parsed_output"})
"""Keys that the SDKs' own parsing adds to replies; no provider knows them."""

KEY_ORDER = ("type", "role", "id", "call_id", "name", "content", "text", "thinking", "signature", "input", "arguments")
"""First keys of what the model said; the others follow by name."""

_PLACES = {key: place for place, key in enumerate(KEY_ORDER)}

_EXPECTED = (
    "reply is the provider's response, as its SDK returns it or as a dictionary: a Message of Anthropic, a"
    " ChatCompletion, a Response, a GenerateContentResponse, or one message of the assistant."
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply as messages to record, with the usage that the provider reported."""

    messages: list[Native]
    usage: Mapping[str, Any] | None = None


def read_reply(reply: object) -> Reply:
    """The messages and the usage of a response. Raises BadInputError if it is none that is known."""
    data = as_json(reply)
    if isinstance(data, list):
        return Reply([as_said(item) for item in data])
    if not isinstance(data, dict):
        raise BadInputError(_EXPECTED)
    return Reply([as_said(native) for native in _messages(data)], _usage(data))


def _messages(data: Native) -> list[Native]:
    if isinstance(data.get("choices"), list):
        return [_first(data["choices"], "message")]
    if isinstance(data.get("candidates"), list):
        return [_first(data["candidates"], "content")]
    if isinstance(data.get("output"), list):
        return [item for item in data["output"] if isinstance(item, dict)]
    if data.get("role") in ("assistant", "model"):
        return [{key: data[key] for key in data if key not in _ENVELOPE} if data.get("type") == "message" else data]
    raise BadInputError(_EXPECTED)


_ENVELOPE = frozenset({"id", "type", "model", "stop_reason", "stop_sequence", "usage", "container", "stop_details"})
"""Keys of an Anthropic Message around its role and content. An item of Responses has `type: message` too, but comes in
a list."""


def _first(choices: Sequence[Any], key: str) -> Native:
    found = choices[0].get(key) if choices and isinstance(choices[0], dict) else None
    if not isinstance(found, dict):
        raise BadInputError(f"This reply has no {key}: there is nothing to record.")
    return found


def _usage(data: Mapping[str, Any]) -> Mapping[str, Any] | None:
    for key in ("usage", "usageMetadata", "usage_metadata"):
        if isinstance(data.get(key), dict):
            usage: Mapping[str, Any] = data[key]
            return usage
    return None


def as_natives(messages: Sequence[object]) -> list[Native]:
    """A program's message list in plain JSON. What the model said is brought into one form: the list holds it as the
    program appended it, the session as the reply came, and both must be equal."""
    natives = []
    for place, message in enumerate(messages):
        native = as_json(message)
        if not isinstance(native, dict):
            raise BadInputError(
                f"Message {place} is {type(message).__name__}; expected a dictionary or an SDK's object."
            )
        natives.append(as_said(native) if _is_said(native) else native)
    return natives


def _is_said(native: Native) -> bool:
    """Whether the model wrote it: a message of the assistant, or an item of Responses that is no input."""
    role = native.get("role")
    if role is not None:
        return role in ("assistant", "model")
    return not str(native.get("type", "")).endswith("_output")


def as_said(native: Native) -> Native:
    """A message of the model in the form that its provider takes it back in."""
    said = _in_order(native)
    content = said.get("content")
    if isinstance(content, list):
        said["content"] = _text_alone(content) if said.get("role") == "assistant" and "type" not in said else None
        said["content"] = said["content"] or [_in_order(part) if isinstance(part, dict) else part for part in content]
    for key in ("tool_calls", "parts"):
        if isinstance(said.get(key), list):
            said[key] = [_in_order(part) if isinstance(part, dict) else part for part in said[key]]
    for call in said.get("tool_calls") or ():
        if isinstance(call, dict) and isinstance(call.get("function"), dict):
            call.pop("index", None)
            call["function"] = _in_order(call["function"])
    return said


def _text_alone(content: Sequence[object]) -> str | None:
    """The text of content that is one plain text: providers take it as a string too."""
    if len(content) != 1 or not isinstance(content[0], dict):
        return None
    part = {key: value for key, value in content[0].items() if value is not None}
    return part["text"] if part.keys() == {"type", "text"} and isinstance(part["text"], str) else None


def _in_order(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without nulls and empty annotations of a message, which some SDKs add and others leave out, and in one order."""
    empty = ("type" not in values and values.get("annotations") == []) * ("annotations",)
    kept = {
        key: value
        for key, value in values.items()
        if value is not None and key not in REPLY_ONLY_KEYS and key not in empty
    }
    return dict(sorted(kept.items(), key=lambda item: (_PLACES.get(item[0], len(_PLACES)), item[0])))


def as_json(value: object) -> Any:
    """The value with the SDK's objects in it as JSON. Values that are plain already are not copied."""
    dump = getattr(value, "model_dump", None)
    if callable(dump):
        return dump(mode="json", by_alias=True, exclude_none=True)
    if isinstance(value, dict):
        changed = {key: as_json(child) for key, child in value.items() if isinstance(child, list) or _is_sdk(child)}
        return {**value, **changed} if any(changed[key] is not value[key] for key in changed) else value
    if isinstance(value, list | tuple):
        children = [as_json(child) if isinstance(child, dict) or _is_sdk(child) else child for child in value]
        return children if any(new is not old for new, old in zip(children, value, strict=True)) else value
    return value


def _is_sdk(value: object) -> bool:
    return callable(getattr(value, "model_dump", None))
