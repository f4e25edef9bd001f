"""Short ways to write the messages of each format."""

from __future__ import annotations

from typing import Any

from contextstash_storage.records import Native

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic", "openai-chat", "openai-responses", "gemini"

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CHAT_IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
INPUT_IMAGE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
INLINE_IMAGE = {"inlineData": {"mimeType": "image/png", "data": "aGk="}}

REASONING: Native = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "Z0FB"}
"""An item of the Responses API."""


def user(*content: Any, **keys: Any) -> Native:
    """A message of the user: of any format but Gemini's."""
    return {"role": "user", "content": list(content), **keys}


def assistant(*content: Any, **keys: Any) -> Native:
    """A message of the model: of any format but Gemini's."""
    return {"role": "assistant", "content": list(content), **keys}


def text(said: str, kind: str = "text") -> Native:
    return {"type": kind, "text": said}


def thinking(said: str = "hm", signature: str = "c2ln") -> Native:
    return {"type": "thinking", "thinking": said, "signature": signature}


def tool_use(call_id: str) -> Native:
    return {"type": "tool_use", "id": call_id, "name": "Read", "input": {"file_path": "src/a.py"}}


def tool_result(call_id: str, content: Any = "done") -> Native:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def chat_calls(*ids: str, **keys: Any) -> Native:
    function = {"name": "run", "arguments": '{"command": "ls -l"}'}
    calls = [{"id": call_id, "type": "function", "function": function} for call_id in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **keys}


def chat_result(call_id: str, content: Any = "done") -> Native:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def call_item(call_id: str, kind: str = "function_call") -> Native:
    if kind == "custom_tool_call":
        return {"type": kind, "call_id": call_id, "name": "apply_patch", "input": "*** Update File: a.py\n"}
    return {"type": kind, "call_id": call_id, "name": "run", "arguments": '{"cmd": "ls"}'}


def output_item(call_id: str, content: Any = "done", kind: str = "function_call_output") -> Native:
    return {"type": kind, "call_id": call_id, "output": content}


def asked(*parts: Native) -> Native:
    """A content of Gemini's user."""
    return {"role": "user", "parts": list(parts)}


def replied(*parts: Native, **keys: Any) -> Native:
    """A content of Gemini's model."""
    return {"role": "model", "parts": list(parts), **keys}


def calling(*names: str) -> Native:
    return replied(*({"functionCall": {"name": name, "args": {"path": "a"}}} for name in names))


def answering(*names: str, response: Any = None) -> Native:
    answers = [
        {"name": name, "response": {"output": f"{name} done"} if response is None else response} for name in names
    ]
    return asked(*({"functionResponse": answer} for answer in answers))
