"""The reply that ends a turn, read from the response that held it, in the form in which clients send it back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from contextstash_storage.records import Native

_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The member to which a piece of Anthropic's stream is added, by the type of the delta."""

_SENT_BACK = {
    "message": ("type", "role", "phase", "content"),
    "reasoning": ("type", "summary", "content", "encrypted_content"),
}
"""What Codex 0.169 keeps of the items of a reply; it leaves out their ids and states."""

ENDS = ("end_turn", "stop_sequence")
"""Anthropic's reasons to stop after which no request for the same turn follows."""


def final_reply(format_name: str, parts: Sequence[bytes]) -> list[Native]:
    """The messages of a reply; none if it calls a tool, since the next request holds it then, or if it is not whole.
    `parts` are the events of its stream, or its body."""
    try:
        events = [json.loads(part) for part in parts]
        if format_name == "anthropic":
            return _message(events)
        return _items(events) if format_name == "openai-responses" else []
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []


def _message(events: Sequence[Any]) -> list[Native]:
    blocks: dict[int, dict[str, Any]] = {}
    ended, stopped = False, None
    for event in events:
        match event["type"]:
            case "message":
                blocks, ended, stopped = dict(enumerate(event["content"])), True, event["stop_reason"]
            case "content_block_start":
                blocks[event["index"]] = dict(event["content_block"])
            case "content_block_delta":
                _add(blocks[event["index"]], event["delta"])
            case "message_delta":
                stopped = event["delta"].get("stop_reason") or stopped
            case "message_stop":
                ended = True
    content = [blocks[index] for index in sorted(blocks)]
    whole = ended and stopped in ENDS and {block["type"] for block in content} <= {"text", "thinking"}
    return [{"role": "assistant", "content": content}] if whole and any(block.get("text") for block in content) else []


def _add(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    name = _TEXTS[delta["type"]]
    block[name] = block.get(name, "") + delta[name]


def _items(events: Sequence[Any]) -> list[Native]:
    items = [event["item"] for event in events if event.get("type") == "response.output_item.done"]
    ends = [event for event in events if event.get("type") == "response.completed" or "output" in event]
    if not ends:
        return []
    response = ends[-1].get("response", ends[-1])
    items = items or list(response.get("output") or ())
    kinds = {item["type"] for item in items}
    whole = response.get("status", "completed") == "completed" and "message" in kinds <= _SENT_BACK.keys()
    return [_sent_back(item) for item in items] if whole else []


def _sent_back(item: Mapping[str, Any]) -> Native:
    kept = {name: item[name] for name in _SENT_BACK[item["type"]] if item.get(name) is not None}
    if item["type"] == "message":
        kept["content"] = [{"type": part["type"], "text": part["text"]} for part in item["content"]]
    return kept
