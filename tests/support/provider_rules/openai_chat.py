"""The rules of OpenAI Chat Completions, from its API reference and the API's error messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from contextstash_storage.records import Native

_ROLES = ("system", "developer", "user", "assistant", "tool")
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


def _call_structure(place: int, native: Native) -> Iterator[str]:
    calls = native.get("tool_calls", ...)
    if calls is not ... and (not isinstance(calls, list) or not calls):
        yield f"Message {place}: tool_calls must be omitted or contain at least one call."
    elif calls is not ... and not all(isinstance(call, dict) and isinstance(call.get("id"), str) for call in calls):
        yield f"Message {place} contains a tool call without an id."
    if native.get("role") != "assistant" and "tool_calls" in native:
        yield f"Message {place}: only the assistant can call tools."


def _has_no_content(native: Native) -> bool:
    """A tool may return an empty text. Elsewhere strict providers of this format (DeepSeek among them) refuse it."""
    content = native.get("content")
    return content is None or (content == "" and native.get("role") != "tool")


def _has_other_content(native: Native) -> bool:
    return any(native.get(key) for key in ("tool_calls", "refusal", "audio"))


def _pairs(natives: Sequence[Native]) -> Iterator[str]:
    """All calls of a message are answered, each exactly once, by the messages directly after it."""
    caller = 0
    due: dict[Any, None] = {}
    for place, native in enumerate(natives):
        if native["role"] == "tool":
            key = native.get("tool_call_id")
            if key not in due:
                yield f"Message {place}: the result of {key} has no open call directly before it."
            due.pop(key, None)
            continue
        yield from _unanswered(caller, due)
        keys = [call.get("id") for call in native.get("tool_calls") or ()]
        due, caller = dict.fromkeys(keys), place
        if len(due) < len(keys):
            yield f"Message {place} contains two calls with the same id."
    yield from _unanswered(caller, due)


def _unanswered(caller: int, due: dict[Any, None]) -> Iterator[str]:
    for call_id in due:
        yield f"Message {caller}: the call {call_id} is not answered directly after it."
