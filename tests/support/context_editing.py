"""Anthropic's context editing as its page documents it: what the API shows the model of a request."""

from __future__ import annotations

import copy
import json
from typing import Any

BETA = "context-management-2025-06-27"
PLACEHOLDER = "[cleared]"
CHARACTERS_PER_TOKEN = 3.4


def edited_by_provider(body: dict[str, Any], betas: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The request as the model sees it, and the edits that its response reports. Raises ValueError if the API would
    refuse it."""
    edits = (body.get("context_management") or {}).get("edits") or []
    edit = next((each for each in edits if each["type"] == "clear_tool_uses_20250919"), None)
    if edit is None:
        return body, []
    if BETA not in betas.split(","):
        raise ValueError("context_management: Extra inputs are not permitted")
    if any(each["type"].startswith("clear_thinking") for each in edits[1:]):
        raise ValueError("clear_thinking must be the first edit")
    shown = copy.deepcopy(body)
    messages = [message for message in shown["messages"] if isinstance(message["content"], list)]
    results = [block for message in messages for block in message["content"] if block["type"] == "tool_result"]
    assert edit["trigger"]["type"] == edit["keep"]["type"] == "tool_uses"
    oldest = results[: len(results) - edit["keep"]["value"]] if len(results) > edit["trigger"]["value"] else []
    freed = 0
    for block in oldest:
        freed += round(len(json.dumps(block["content"])) / CHARACTERS_PER_TOKEN)
        block["content"] = PLACEHOLDER
    if not oldest:
        return body, []
    return shown, [{"type": edit["type"], "cleared_tool_uses": len(oldest), "cleared_input_tokens": freed}]
