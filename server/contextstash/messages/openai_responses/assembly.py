"""Repairs a list of Responses items so that the API accepts it.

Valid items keep their content and order. A call without an output gets one that says that it was interrupted, after
the calls that were made together with it. An output without its call becomes a user message. Reasoning is left out if
no item of the model follows it, and so is a computer call without its screenshot, which nothing can replace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from contextstash.messages.block_reader import MISSING_RESULT, as_json, orphan_text
from contextstash_storage.records import Native

INPUT_ROLES = ("user", "system", "developer")

APPROVAL_REQUEST = "mcp_approval_request"
APPROVAL_RESPONSE = "mcp_approval_response"


def item_type(item: Mapping[str, Any]) -> str:
    """The item's type; a message may omit it."""
    kind = item.get("type")
    return kind if isinstance(kind, str) else "message" if "role" in item else ""


def call_id_of(item: Mapping[str, Any]) -> str | None:
    """The id of a call that the client answers; None for any other item, and for calls of the provider's own tools."""
    kind = item_type(item)
    if kind == APPROVAL_REQUEST:
        return _text(item, "id")
    return _text(item, "call_id") if kind.endswith("_call") else None


def answered_id_of(item: Mapping[str, Any]) -> str | None:
    """The id of the call that this item answers; None if it does not answer one."""
    kind = item_type(item)
    if kind == APPROVAL_RESPONSE:
        return _text(item, "approval_request_id")
    if not kind.endswith("_output"):
        return None
    return _text(item, "call_id") or (_text(item, "id") if kind == "local_shell_call_output" else None)


def output_type_for(call_type: str) -> str:
    """The type of the item that answers a call of this type."""
    if call_type == APPROVAL_REQUEST:
        return APPROVAL_RESPONSE
    return "tool_search_output" if call_type == "tool_search_call" else f"{call_type}_output"


def is_input(item: Mapping[str, Any]) -> bool:
    """Whether the item comes from the client, not from the model."""
    kind = item_type(item)
    if kind == "message":
        return item.get("role") in INPUT_ROLES
    return kind.endswith("_output") or kind == APPROVAL_RESPONSE


def _text(item: Mapping[str, Any], key: str) -> str | None:
    value = item.get(key)
    return value if isinstance(value, str) and value else None


REPLY_KEYS = frozenset({"usage", "response_id", "model", "object", "created_at", "timestamp"})
"""Keys that recorders add to an item, and that a request may not have. `status` is allowed, but not null."""


def assemble(natives: Sequence[Native]) -> list[Native]:
    """The items of a valid request; equal to `natives` if these are valid already."""
    items = [_request_shaped(native) for native in natives]
    answers = _answers(items)
    unanswered = _unanswered(items, answers)
    paired: list[Native] = []
    waiting: dict[str, Native] = {}
    for place, item in enumerate(items):
        call_id = call_id_of(item)
        if waiting and (call_id is None or call_id in waiting):
            paired += [_missing(call) for call in waiting.values()]
            waiting = {}
        if place in unanswered:
            if item_type(item) == "computer_call":
                continue
            waiting[str(call_id)] = item
        if answered_id_of(item) is None:
            paired.append(item)
        elif place in answers:
            paired.append(_fitting(item, items[answers[place]]))
        elif shown := _orphan(item):
            paired.append(shown)
    paired += [_missing(call) for call in waiting.values()]
    return _without_lone_reasoning(paired)


def _request_shaped(native: Native) -> Native:
    item = {
        key: value for key, value in native.items() if key not in REPLY_KEYS and not (key == "status" and value is None)
    }
    if item_type(item) == "reasoning" and not isinstance(item.get("summary"), list):
        item["summary"] = []
    if item_type(item).endswith("_call_output") and item.get("output") is None:
        item["output"] = ""
    return item


def _answers(items: Sequence[Native]) -> dict[int, int]:
    """Maps the place of an output to the place of its call. A call that is repeated while it is open counts as
    interrupted: the API could not distinguish the two."""
    answers: dict[int, int] = {}
    open_calls: dict[str, int] = {}
    for place, item in enumerate(items):
        call_id, answered = call_id_of(item), answered_id_of(item)
        if call_id is not None:
            open_calls[call_id] = place
        elif answered in open_calls and _can_answer(item, items[open_calls[answered]]):
            answers[place] = open_calls.pop(answered)
    return answers


def _can_answer(output: Native, call: Native) -> bool:
    return item_type(call) != "computer_call" or item_type(output) == "computer_call_output"


def _unanswered(items: Sequence[Native], answers: Mapping[int, int]) -> set[int]:
    answered = set(answers.values())
    return {place for place, item in enumerate(items) if call_id_of(item) is not None and place not in answered}


def _fitting(output: Native, call: Native) -> Native:
    """The output, converted if necessary to the type that answers this type of call."""
    wanted = output_type_for(item_type(call))
    if item_type(output) == wanted:
        return output
    return _answer_to(call, _output_text(output))


def _missing(call: Native) -> Native:
    return _answer_to(call, MISSING_RESULT)


def _answer_to(call: Native, text: str) -> Native:
    kind = item_type(call)
    wanted = output_type_for(kind)
    if kind == APPROVAL_REQUEST:
        return {"type": wanted, "approval_request_id": call["id"], "approve": False}
    answer: Native = {"type": wanted, "call_id": call["call_id"]}
    if kind == "tool_search_call":
        answer["tools"] = []
    elif kind == "shell_call":
        outcome = {"type": "exit", "exit_code": 1}
        answer["output"] = [{"stdout": "", "stderr": text, "outcome": outcome}]
    else:
        answer["output"] = text
    if kind == "apply_patch_call":
        answer["status"] = "failed"
    return answer


def _orphan(output: Native) -> Native | None:
    """An output without its call as a user message, with its text, images and files."""
    content = output.get("output")
    media = [part for part in content if _is_media(part)] if isinstance(content, list) else []
    text = orphan_text(_output_text(output))
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    if not parts and not media:
        return None
    return {"type": "message", "role": "user", "content": parts + media}


def _is_media(part: object) -> bool:
    return isinstance(part, dict) and part.get("type") in ("input_image", "input_file")


def _output_text(output: Native) -> str:
    content = output.get("output")
    if content is None or item_type(output) == "computer_call_output":
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return as_json(content)
    return "\n".join(_part_text(part) for part in content if not _is_media(part))


def _part_text(part: object) -> str:
    text = part.get("text") if isinstance(part, Mapping) else None
    return text if isinstance(text, str) else as_json(part)


def _without_lone_reasoning(items: Sequence[Native]) -> list[Native]:
    kept: list[Native] = []
    followed = False
    for item in reversed(items):
        if item_type(item) != "reasoning":
            followed = not is_input(item)
        elif not followed:
            continue
        kept.append(item)
    kept.reverse()
    return kept
