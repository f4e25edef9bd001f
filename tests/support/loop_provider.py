"""A provider of our own on loopback for agent loops: asks for a shell command once, then reports its result.

Speaks Anthropic's Messages API and OpenAI's Chat Completions, whole answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_server import served

COMMAND = "echo forty-two files"


@dataclass
class LoopProvider:
    """Its address and the requests it received."""

    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextmanager
def loop_provider() -> Iterator[LoopProvider]:
    """A provider on a free port of this machine."""
    provider = LoopProvider()
    with served(_Handler, provider=provider) as provider.url:
        yield provider


class _Handler(BaseHTTPRequestHandler):
    provider: LoopProvider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.provider.requests.append(asked)
        answer = anthropic_answer(asked) if self.path.endswith("/messages") else openai_answer(asked)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def anthropic_answer(asked: dict[str, Any]) -> dict[str, Any]:
    """A call of the tool, or what the last tool result says."""
    last = asked["messages"][-1]["content"]
    has_result = isinstance(last, list) and last[0]["type"] == "tool_result"
    call = {"type": "tool_use", "id": "toolu_1", "name": "shell", "input": {"command": COMMAND}}
    return {
        "id": f"msg_{len(asked['messages'])}",
        "type": "message",
        "role": "assistant",
        "model": asked["model"],
        "content": [{"type": "text", "text": f"I found: {last[0]['content']}"}] if has_result else [call],
        "stop_reason": "end_turn" if has_result else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 300, "output_tokens": 20},
    }


def openai_answer(asked: dict[str, Any]) -> dict[str, Any]:
    """A call of the tool, or what the last tool message says."""
    last = asked["messages"][-1]
    has_result = last["role"] == "tool"
    called = {"name": "shell", "arguments": json.dumps({"command": COMMAND})}
    message: dict[str, Any] = {"role": "assistant", "content": f"I found: {last['content']}" if has_result else None}
    if not has_result:
        message |= {"tool_calls": [{"id": "call_1", "type": "function", "function": called}]}
    return {
        "id": f"chatcmpl-{len(asked['messages'])}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": asked["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop" if has_result else "tool_calls"}],
        "usage": {"prompt_tokens": 300, "completion_tokens": 20, "total_tokens": 320},
    }
