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
from tests.support.model_replies import (
    ReplyingHandler,
    function_call,
    message_events,
    output_text,
    response_events,
    tool_use,
)

Json = dict[str, Any]
Calls = Sequence[tuple[str, Json]]
"""The tools that the model calls, by the end of their names, with their arguments."""


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


class _Handler(ReplyingHandler, BaseHTTPRequestHandler):
    provider: ToolCallingProvider

    def do_GET(self) -> None:
        self.send_json({})

    def do_POST(self) -> None:
        asked = json.loads(self.asked_bytes() or b"{}")
        path = self.path.partition("?")[0]
        write = {"/v1/chat/completions": _chat, "/v1/responses": _responses, "/v1/messages": _messages}.get(path)
        if write is None:
            self.send_json({"input_tokens": 10})
            return
        events = write(asked, self._next_call(asked))
        if not asked.get("stream"):
            self.send_json(_whole(path, events))
        elif path == "/v1/chat/completions":
            text = "".join(f"data: {data}\n\n" for data in [*map(json.dumps, events), "[DONE]"])
            self.send_bytes(text.encode(), "text/event-stream")
        else:
            self.send_events(events)

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


def _chat(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Json]:
    made = len(_results(asked))
    delta: Json = {"role": "assistant", "content": "done" if call is None else None}
    if call is not None:
        function = {"name": call[0], "arguments": json.dumps(call[2])}
        delta["tool_calls"] = [{"index": 0, "id": f"call_{made}", "type": "function", "function": function}]
    base = {"id": f"chat_{made}", "object": "chat.completion.chunk", "created": 1, "model": asked["model"]}
    reason = "stop" if call is None else "tool_calls"
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
    return [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**base, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**base, "choices": [], "usage": usage},
    ]


def _responses(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Json]:
    made = len(_results(asked))
    if call is None:
        return response_events(asked["model"], made, output_text(made, "done"), 100)
    item = function_call(made, call[0], call[2]) | ({"namespace": call[1]} if call[1] else {})
    return response_events(asked["model"], made, item, 100)


def _messages(asked: Json, call: tuple[str, str | None, Json] | None) -> list[Json]:
    made = len(_results(asked))
    block = {"type": "text", "text": "done"} if call is None else tool_use(made, call[0], call[2])
    return message_events(asked["model"], made, block, 100)


def _whole(path: str, events: list[Json]) -> Json:
    """The answer in one piece, made of its events."""
    if path == "/v1/responses":
        response: Json = events[-1]["response"]
        return response
    if path == "/v1/messages":
        return {**events[0]["message"], "content": [{"type": "text", "text": "done"}], "stop_reason": "end_turn"}
    first, last, counted = events
    choice = {"index": 0, "message": first["choices"][0]["delta"]}
    choice["finish_reason"] = last["choices"][0]["finish_reason"]
    return {**first, "object": "chat.completion", "choices": [choice], "usage": counted["usage"]}
