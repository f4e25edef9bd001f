"""The rules of OpenAI Chat Completions and Responses, from their API reference and the API's error messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from contextstash_storage.records import Native

_ROLES = ("system", "developer", "user", "assistant", "tool")
_CHAT_REPLY_KEYS = ("usage", "finish_reason", "logprobs", "annotations", "model", "created")


def openai_chat_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _chat_structure(place, native)]
    return malformed or list(_chat_pairs(natives))


def _chat_structure(place: int, native: Native) -> Iterator[str]:
    role = native.get("role")
    if role not in _ROLES:
        yield f"Message {place} has the role {role!r}; expected one of {', '.join(_ROLES)}."
    for key in _CHAT_REPLY_KEYS:
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


def _chat_pairs(natives: Sequence[Native]) -> Iterator[str]:
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


_INPUT_ROLES = ("user", "system", "developer")
_PAIRS = {
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
    "program": "program_output",
}
_ITEM_REPLY_KEYS = ("usage", "response_id")


def openai_responses_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _item_structure(place, native)]
    return malformed or [*_item_pairs(natives), *_reasoning(natives)]


def _type(item: Native) -> str:
    return str(item.get("type", "message" if "role" in item else ""))


def _item_structure(place: int, item: Native) -> Iterator[str]:
    kind = _type(item)
    if not kind:
        yield f"Item {place} has neither type nor role."
    if kind == "message" and item.get("role") not in (*_INPUT_ROLES, "assistant"):
        yield f"Item {place} has the role {item.get('role')!r}."
    if kind == "message" and not isinstance(item.get("content"), str | list):
        yield f"Item {place} has no content."
    if kind == "reasoning" and not isinstance(item.get("summary"), list):
        yield f"Item {place}: reasoning has no summary list (it may be empty, but not missing)."
    if "status" in item and item["status"] is None:
        yield f"Item {place}: status may be omitted but not null."
    if kind.endswith("_call_output") and item.get("output") is None:
        yield f"Item {place} has no output."
    for key in _ITEM_REPLY_KEYS:
        if key in item:
            yield f"Item {place} has the key '{key}', which a request may not have."


def _item_pairs(items: Sequence[Native]) -> Iterator[str]:
    """Each call with an id is answered exactly once, later, by an output of its type; each output has a call."""
    due: dict[str, tuple[int, str]] = {}
    for place, item in enumerate(items):
        kind = _type(item)
        called = item.get("id") if kind == "mcp_approval_request" else item.get("call_id")
        answered = _answered(item, kind)
        if (kind.endswith("_call") or kind in _PAIRS) and isinstance(called, str):
            if called in due:
                yield f"Item {place}: the call {called} is repeated while it has no output."
            due[called] = (place, _PAIRS.get(kind, f"{kind}_output"))
        elif isinstance(answered, str):
            _, expected = due.pop(answered, (place, ""))
            if not expected:
                yield f"Item {place}: the output of {answered} has no open call before it."
            elif expected != kind:
                yield f"Item {place} is a '{kind}', but the call {answered} needs a '{expected}'."
    callers = [str((item.get("caller") or {}).get("caller_id")) for item in items]
    for called, (place, kind) in due.items():
        is_paused = called in callers or not any(map(_is_input, items[place:]))
        if not (kind == "program_output" and is_paused):  # a program waits for the calls that it made
            yield f"Item {place}: the call {called} has no output."


def _answered(item: Native, kind: str) -> object:
    if kind == "mcp_approval_response":
        return item.get("approval_request_id")
    if not kind.endswith("_output"):
        return None
    fallback = item.get("id") if kind == "local_shell_call_output" else None
    return item.get("call_id") or fallback


def _reasoning(items: Sequence[Native]) -> Iterator[str]:
    for place, item in enumerate(items):
        if _type(item) != "reasoning":
            continue
        following = items[place + 1] if place + 1 < len(items) else None
        if following is None or _is_input(following):
            yield f"Item {place}: reasoning is not followed by the item that it led to."


def _is_input(item: Native) -> bool:
    kind = _type(item)
    if kind == "message":
        return item.get("role") in _INPUT_ROLES
    return kind != "program_output" and (kind.endswith("_output") or kind in _PAIRS.values())
