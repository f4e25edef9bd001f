"""Messages of OpenAI Chat Completions, for hosts whose own form is no provider's."""

from __future__ import annotations

import json
from collections.abc import Sequence

from contextstash_storage.records import Native

Content = str | Sequence[Native]


def said_by_user(content: Content) -> Native:
    return {"role": "user", "content": content if isinstance(content, str) else list(content)}


def said_by_system(text: str) -> Native:
    return {"role": "system", "content": text}


def reply(text: str, calls: Sequence[Native] = (), reasoning: str = "") -> Native:
    """What the model said and called; it must have done one of them."""
    message: Native = {"role": "assistant", "content": text or None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = list(calls)
    return message


def call(call_id: str, name: str, arguments: object) -> Native:
    """A call of a function. `arguments` are JSON as text, or a value that is put as such."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def result(call_id: str, content: Content) -> Native:
    return {"role": "tool", "tool_call_id": call_id, "content": content if isinstance(content, str) else list(content)}


def text_part(text: str) -> Native:
    return {"type": "text", "text": text}


def image_part(url: str) -> Native:
    return {"type": "image_url", "image_url": {"url": url}}


def simple(parts: Sequence[Native]) -> Content:
    """Parts as one text if they are nothing else."""
    if all(part.get("type") == "text" for part in parts):
        return "".join(part["text"] for part in parts)
    return parts
