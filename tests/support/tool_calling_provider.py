"""A provider on loopback whose model calls given tools in turn, in each wire format that clients speak.

Chat Completions, Responses and Messages, streamed or whole. What the model was sent is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_server import served

Json = dict[str, Any]
Calls = Sequence[tuple[str, Json]]
"""The tools that the model calls, by the end of their names, with their arguments."""

USAGE = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}


@dataclass
class ToolCallingProvider:
    """Its address, the calls that its model makes, and the bodies of the requests that offered these tools."""

    calls: Calls
    url: str = ""
    asked: list[Json] = field(default_factory=list)

    def results(self) -> list[str]:
        """The tool results that the model was sent last, as JSON text or as text."""
        return _results(self.asked[-1]) if self.asked else []


@contextmanager
def tool_calling_provider(calls: Calls) -> Iterator[ToolCallingProvider]:
    """A provider on a free port of this machine."""
    provider = ToolCallingProvider(calls)
    with served(_Handler, provider=provider) as provider.url:
        yield provider


class _Handler(BaseHTTPRequestHandler):
    provider: ToolCallingProvider

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
        path = self.path.partition("?")[0]
        write = {"/v1/chat/completions": _chat, "/v1/responses": _responses, "/v1/messages": _messages}.get(path)
        if write is None:
            self._send(b'{"input_tokens": 10}', "application/json")
            return
        events = write(asked, self._next_call(asked))
        if asked.get("stream"):
            text = "".join(f"{f'event: {name}' + chr(10) if name else ''}data: {data}\n\n" for name, data in events)
            self._send(text.encode(), "text/event-stream")
        else:
            self._send(_whole(path, events), "application/json")

    def _next_call(self, asked: Json) -> tuple[str, str | None, Json] | None:
        """Name, namespace and arguments of the call that is due, None if all are made or the tools not offered."""
        offered = list(_offered(asked.get("tools") or []))
        if not any(name.endswith(self.provider.calls[0][0]) for name, _ in offered):
            return None
        self.provider.asked.append(asked)
        made = len(_results(asked))
        if made >= len(self.provider.calls):
            return None
        wanted, arguments = self.provider.calls[made]
        name, space = next(each for each in offered if each[0].endswith(wanted))
        return name, space, arguments

    def _send(self, body: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def _offered(tools: list[Json], space: str | None = None) -> Iterator[tuple[str, str | None]]:
    """The names of the tools, and the namespace of each: Codex offers an MCP server's tools inside one."""
    for tool in tools:
        if tool.get("type") == "namespace":
            yield from _offered(tool.get("tools") or [], tool["name"])
        else:
            name = tool.get("name") or (tool.get("function") or {}).get("name")
            if name:
                yield name, space


def _results(asked: Json) -> list[str]:
    found = []
    for message in [*asked.get("messages", []), *(asked["input"] if isinstance(asked.get("input"), list) else [])]:
        if message.get("role") == "tool":
            found.append(_text(message["content"]))
        elif message.get("type") == "function_call_output":
            found.append(_text(message["output"]))
        elif isinstance(message.get("content"), list):
            found += [_text(each.get("content")) for each in message["content"] if each.get("type") == "tool_result"]
    return found


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(each.get("text") or "" for each in content)
    return str(content)


Event = tuple[str, str]


def _chat(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Event]:
    made = len(_results(asked))
    delta: Json = {"role": "assistant", "content": "done" if call is None else None}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[2])}
        delta["tool_calls"] = [{"index": 0, "id": f"call_{made}", "type": "function", "function": function}]
    base = {"id": f"chat_{made}", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
    reason = "stop" if call is None else "tool_calls"
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    chunks = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**base, "choices": [], "usage": usage},
    ]
    return [("", json.dumps(chunk)) for chunk in chunks] + [("", "[DONE]")]


def _responses(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Event]:
    made = len(_results(asked))
    item: Json = {"type": "message", "role": "assistant", "id": f"msg_{made}", "status": "completed"}
    item["content"] = [{"type": "output_text", "text": "done", "annotations": []}]
    if call is not None:
        item = {"type": "function_call", "id": f"fc_{made}", "call_id": f"call_{made}", "status": "completed"}
        item |= {"name": call[0], "arguments": json.dumps(call[2])} | ({"namespace": call[1]} if call[1] else {})
    answer = {"id": f"resp_{made}", "object": "response", "created_at": 1, "model": asked["model"], "output": [item]}
    answer |= {"status": "completed", "usage": USAGE, "parallel_tool_calls": False, "tool_choice": "auto", "tools": []}
    events: list[Json] = [
        {"type": "response.created", "response": {**answer, "output": [], "status": "in_progress"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": answer},
    ]
    return [(event["type"], json.dumps({**event, "sequence_number": at})) for at, event in enumerate(events)]


def _messages(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Event]:
    made = len(_results(asked))
    usage = {"input_tokens": 100, "output_tokens": 1}
    message: Json = {"id": f"msg_{made}", "type": "message", "role": "assistant", "model": asked["model"]}
    message |= {"content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
    if call is None:
        block: Json = {"type": "text", "text": ""}
        delta: Json = {"type": "text_delta", "text": "done"}
    else:
        block = {"type": "tool_use", "id": f"toolu_{made:020d}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[2])}
    end = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    events: list[Json] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": end, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return [(event["type"], json.dumps(event)) for event in events]


def _whole(path: str, events: list[Event]) -> bytes:
    """The answer in one piece, made of its events."""
    parsed = [json.loads(data) for _, data in events if data != "[DONE]"]
    if path == "/v1/responses":
        return json.dumps(parsed[-1]["response"]).encode()
    if path == "/v1/messages":
        text = {"type": "text", "text": "done"}
        return json.dumps({**parsed[0]["message"], "content": [text], "stop_reason": "end_turn"}).encode()
    first, last, counted = parsed
    choice = {"index": 0, "message": first["choices"][0]["delta"], **{"finish_reason": "stop"}}
    choice["finish_reason"] = last["choices"][0]["finish_reason"]
    whole = {**first, "object": "chat.completion", "choices": [choice], "usage": counted["usage"]}
    return json.dumps(whole).encode()
