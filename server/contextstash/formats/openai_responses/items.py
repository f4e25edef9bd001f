"""Which items of the OpenAI Responses API are tool calls, which are outputs, and how they are paired."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
