"""The rules of OpenAI Chat Completions, from its API reference and the API's error messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from contextstash_storage.records import Native

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_REPLY_KEYS = ("usage", "finish_reason", "logprobs", "annotations", "model", "created")


def openai_chat_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _structure(place, native)]
    return malformed or list(_pairs(natives))


def _structure(place: int, native: Native) -> Iterator[str]:
    role = native.get("role")
    if role not in _ROLES:
        yield f"Message {place} has the role {role!r}; expected one of {', '.join(_ROLES)}."
    for key in _REPLY_KEYS:
        if key in native:
            yield f"Message {place} has the key '{key}', which a request may not have."
    content = native.get("content")
    if content == [] or not isinstance(content, str | list | None):
        yield f"Message {place}: content must be a string or a list of at least one part."
    if _has_no_content(native) and not (role == "assistant" and _has_other_content(native)):
        yield f"Message {place} has no content."
    yield from _call_structure(place, native)
    if role == "tool" and not isinstance(native.get("tool_call_id"), str):
        yield f"Message {place} has the role tool but no tool_call_id."
    if role == "function" and not isinstance(native.get("name"), str):
        yield f"Message {place} has the role function but no name."


def _call_structure(place: int, native: Native) -> Iterator[str]:
    calls, legacy = native.get("tool_calls", ...), native.get("function_call")
    if calls is not ... and (not isinstance(calls, list) or not calls):
        yield f"Message {place}: tool_calls must be omitted or contain at least one call."
    elif calls is not ... and not all(isinstance(call, dict) and isinstance(call.get("id"), str) for call in calls):
        yield f"Message {place} contains a tool call without an id."
    if legacy is not None and not (isinstance(legacy, dict) and isinstance(legacy.get("name"), str)):
        yield f"Message {place}: function_call must be an object with a name."
    if native.get("role") != "assistant" and ("tool_calls" in native or "function_call" in native):
        yield f"Message {place}: only the assistant can call tools."


def _has_no_content(native: Native) -> bool:
    """A tool may return an empty text. Elsewhere strict providers of this format (DeepSeek among them) refuse it."""
    content = native.get("content")
    return content is None or (content == "" and native.get("role") not in ("tool", "function"))


def _has_other_content(native: Native) -> bool:
    return any(native.get(key) for key in ("tool_calls", "function_call", "refusal", "audio"))


def _call_keys(native: Native) -> list[tuple[str, Any]]:
    keys = [("tool", call.get("id")) for call in native.get("tool_calls") or ()]
    if native.get("function_call"):
        keys.append(("function", native["function_call"].get("name")))
    return keys


def _pairs(natives: Sequence[Native]) -> Iterator[str]:
    """All calls of a message are answered, each exactly once, by the messages directly after it."""
    caller = 0
    due: dict[tuple[str, Any], None] = {}
    for place, native in enumerate(natives):
        role = native["role"]
        if role in ("tool", "function"):
            key = (role, native.get("tool_call_id" if role == "tool" else "name"))
            if key not in due:
                yield f"Message {place}: the result of {key[1]} has no open call directly before it."
            due.pop(key, None)
            continue
        yield from _unanswered(caller, due)
        keys = _call_keys(native)
        due, caller = dict.fromkeys(keys), place
        if len(due) < len(keys):
            yield f"Message {place} contains two calls with the same id."
    yield from _unanswered(caller, due)


def _unanswered(caller: int, due: dict[tuple[str, Any], None]) -> Iterator[str]:
    for _, call_id in due:
        yield f"Message {caller}: the call {call_id} is not answered directly after it."
