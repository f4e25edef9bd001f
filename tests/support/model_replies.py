"""A model's replies as Messages and Responses stream them, and the part of an HTTP handler that sends them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import Any

Json = dict[str, Any]


class ReplyingHandler(BaseHTTPRequestHandler):
    """Sends JSON, events or bytes, and logs nothing."""

    def asked_bytes(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def send_json(self, value: Json, status: int = 200) -> None:
        self.send_bytes(json.dumps(value).encode(), "application/json", status)

    def send_events(self, events: Iterable[Json]) -> None:
        text = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self.send_bytes(text.encode(), "text/event-stream")

    def send_bytes(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def tool_use(number: int, name: str, arguments: Json) -> Json:
    """A call of a tool, in the form of Messages."""
    return {"type": "tool_use", "id": f"toolu_{number:020d}", "name": name, "input": arguments}


def function_call(number: int, name: str, arguments: Json) -> Json:
    """A call of a tool, in the form of Responses."""
    item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed"}
    return item | {"name": name, "arguments": json.dumps(arguments)}


def output_text(number: int, text: str) -> Json:
    """A reply of text, in the form of Responses."""
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "role": "assistant", "id": f"msg_{number}", "status": "completed", "content": content}


def message_events(model: str, number: int, block: Json, input_tokens: int) -> list[Json]:
    """The events of a streamed reply of Anthropic Messages with this block of text or this call."""
    is_call = block["type"] == "tool_use"
    begun: Json = {**block, **({"input": {}} if is_call else {"text": ""})}
    message: Json = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": model, "content": []}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": input_tokens, "output_tokens": 1}}
    if is_call:
        delta: Json = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        delta = {"type": "text_delta", "text": block["text"]}
    end = {"stop_reason": "tool_use" if is_call else "end_turn", "stop_sequence": None}
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": begun},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]


def response_events(model: str, number: int, item: Json, input_tokens: int) -> list[Json]:
    """The events of a streamed reply of OpenAI Responses with this item."""
    answer: Json = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": model, "output": [item]}
    answer |= {"status": "completed", "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    answer["usage"] = {"input_tokens": input_tokens, "output_tokens": 5, "total_tokens": input_tokens + 5}
    events: list[Json] = [
        {"type": "response.created", "response": {**answer, "output": [], "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    return [{**event, "sequence_number": at} for at, event in enumerate(events)]
