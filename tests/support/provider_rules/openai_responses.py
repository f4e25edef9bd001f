"""The rules of OpenAI Responses, from its API reference and the API's error messages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from contextstash_storage.records import Native

_INPUT_ROLES = ("user", "system", "developer")
_PAIRS = {"tool_search_call": "tool_search_output", "mcp_approval_request": "mcp_approval_response"}
_REPLY_KEYS = ("usage", "response_id")


def openai_responses_violations(natives: Sequence[Native]) -> list[str]:
    """See `violations`."""
    malformed = [problem for place, native in enumerate(natives) for problem in _structure(place, native)]
    return malformed or [*_pairs(natives), *_reasoning(natives)]


def _type(item: Native) -> str:
    return str(item.get("type", "message" if "role" in item else ""))


def _structure(place: int, item: Native) -> Iterator[str]:
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
    for key in _REPLY_KEYS:
        if key in item:
            yield f"Item {place} has the key '{key}', which a request may not have."


def _pairs(items: Sequence[Native]) -> Iterator[str]:
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
    for called, (place, _) in due.items():
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
    return kind.endswith("_output") or kind in _PAIRS.values()
