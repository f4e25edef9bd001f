"""Messages of OpenAI Chat Completions, for hosts whose own format is not a provider's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from contextstash_storage.records import Native

Content = str | Sequence[Native]


def user_message(content: Content) -> Native:
    return {"role": "user", "content": content if isinstance(content, str) else list(content)}


def reply(text: str, calls: Sequence[Native] = (), reasoning: str = "") -> Native:
    """A reply of the model. At least one of `text`, `calls` and `reasoning` must not be empty."""
    message: Native = {"role": "assistant", "content": text or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def call(call_id: str, name: str, arguments: object) -> Native:
    """A function call. `arguments` is JSON text, or a value, which is serialized."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def result(call_id: str, content: Content) -> Native:
    return {"role": "tool", "tool_call_id": call_id, "content": content if isinstance(content, str) else list(content)}


def text_part(text: str) -> Native:
    return {"type": "text", "text": text}


def image_part(url: str) -> Native:
    return {"type": "image_url", "image_url": {"url": url}}


def simple(parts: Sequence[Native]) -> Content:
    """The parts as one string if all of them are text; else the parts unchanged."""
    if all(part.get("type") == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts
