"""Reasoning that is bound to everything before it, as newer models write it, and how a provider checks it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

Body = dict[str, Any]

NOT_BOUND = ("id", "status", "annotations", "cache_control")
"""What may differ from what was sent before."""


def reasoning_after(fmt: str, body: Body, number: int) -> Body | None:
    """The reasoning with which a reply to this request begins; None if the format has none."""
    if fmt == "anthropic":
        *_, bound = _prefixes_anthropic(body, [*body["messages"], {"role": "assistant", "content": []}])
        return {"type": "thinking", "thinking": f"Part {number} is next. " * 5, "signature": bound}
    if fmt == "openai-responses":
        *_, bound = _prefixes_responses(body, [*body["input"], {}])
        return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": bound}
    return None


def mismatched(fmt: str, body: Body) -> int:
    """How many pieces of reasoning of a request stand behind something else than when they were written."""
    if fmt == "anthropic":
        prefixes = _prefixes_anthropic(body, body["messages"])
        pairs = zip(body["messages"], prefixes, strict=True)
        return sum(block["signature"] != bound for message, bound in pairs for block in _thinking(message))
    if fmt == "openai-responses":
        pairs = zip(body["input"], _prefixes_responses(body, body["input"]), strict=True)
        return sum(item.get("type") == "reasoning" and item["encrypted_content"] != bound for item, bound in pairs)
    return 0


def calls_without_reasoning(fmt: str, body: Body) -> frozenset[str]:
    """The calls of a request that stand without the reasoning that they were made with."""
    bare: set[str] = set()
    if fmt == "anthropic":
        for message in body["messages"]:
            if not any(True for _ in _thinking(message)):
                blocks = message["content"] if isinstance(message["content"], list) else []
                bare |= {block["id"] for block in blocks if block["type"] == "tool_use"}
    elif fmt == "openai-responses":
        thought = False
        for item in body["input"]:
            if item.get("type") == "function_call" and not thought:
                bare.add(item["call_id"])
            thought = item.get("type") == "reasoning"
    return frozenset(bare)


def _thinking(message: Body) -> Iterator[Body]:
    content = message["content"] if isinstance(message["content"], list) else []
    return (block for block in content if block["type"] == "thinking")


def _prefixes_anthropic(body: Body, messages: list[Body]) -> Iterator[str]:
    """What stands before each message, its own thinking aside."""
    chain = _hash("", [body.get("system"), body.get("tools")])
    for message in messages:
        yield chain
        content = message["content"]
        chain = _hash(
            chain, [message["role"], [{"type": "text", "text": content}] if isinstance(content, str) else content]
        )


def _prefixes_responses(body: Body, items: list[Body]) -> Iterator[str]:
    """What stands before each item. Reasoning itself is not part of it."""
    chain = _hash("", [body.get("tools")])
    for item in items:
        yield chain
        if item.get("type") != "reasoning":
            chain = _hash(chain, {"type": "message", **item})


def _hash(chain: str, value: Any) -> str:
    return hashlib.sha256(f"{chain}{json.dumps(_bound(value), sort_keys=True)}".encode()).hexdigest()


def _bound(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _bound(inner)
            for key, inner in value.items()
            if key not in NOT_BOUND or value.get("type") == "tool_use"
        }
    return [_bound(inner) for inner in value] if isinstance(value, list) else value
