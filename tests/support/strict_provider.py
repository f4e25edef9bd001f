"""A strict provider on loopback: refuses what its rules forbid and what exceeds its window, and keeps account of both.

Speaks Anthropic Messages, Chat Completions (also streamed) and Responses. It calls the tool `read_part` for a
number of turns, then answers "done".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler
from typing import Any

from contextstash.tokenizer import count_with
from tests.support.bound_reasoning import calls_without_reasoning, mismatched, reasoning_after
from tests.support.loopback_server import served
from tests.support.model_replies import ReplyingHandler
from tests.support.provider_rules import violations

Body = dict[str, Any]


@dataclass
class StrictProvider:
    """`accepted` and `over` are the tokens of each request, `invalid` says what was wrong with it. With `binds` replies
    hold reasoning that is bound to what stands before it; `mismatched` counts the pieces of each request that are not
    any more, and `bare` are the calls without theirs."""

    window: int
    turns: int
    tool: str = "read_part"
    url: str = ""
    accepted: list[int] = field(default_factory=list)
    over: list[int] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    requests: list[Body] = field(default_factory=list)
    binds: bool = False
    mismatched: list[int] = field(default_factory=list)
    bare: list[frozenset[str]] = field(default_factory=list)

    def judge(self, fmt: str, body: Body, natives: list[Body], reply_tokens: int) -> tuple[int, str | None]:
        """The request's tokens, and the error with which it is refused."""
        self.requests.append(body)
        wrong = violations(fmt, natives)
        tokens = tokens_of(body)
        if wrong:
            self.invalid += wrong[:1]
            return tokens, wrong[0]
        if tokens + reply_tokens > self.window:
            self.over.append(tokens)
            return tokens, f"prompt is too long: {tokens} tokens > {self.window} maximum"
        self.accepted.append(tokens)
        if self.binds:
            self.mismatched.append(mismatched(fmt, body))
            self.bare.append(calls_without_reasoning(fmt, body))
        return tokens, None

    def reasoning(self, fmt: str, body: Body) -> list[Body]:
        """The reasoning with which the reply begins."""
        found = reasoning_after(fmt, body, len(self.accepted)) if self.binds else None
        return [] if found is None else [found]

    def next_call(self) -> tuple[str, str, dict[str, Any]] | None:
        """The id, name and arguments of the tool call that the next reply makes; None for the last reply."""
        turn = len(self.accepted)
        return (f"call_{turn:06}", self.tool, {"n": turn}) if turn <= self.turns else None


def tokens_of(value: object) -> int:
    """Tokens of all texts in a request, and of the wrapping of each object."""
    if isinstance(value, str):
        return _count(value)
    if isinstance(value, Mapping):
        return 3 + sum(map(tokens_of, value.values()))
    if isinstance(value, list):
        return sum(map(tokens_of, value))
    return 1


@cache
def _count(text: str) -> int:
    return count_with("o200k_base")(text)


@contextmanager
def strict_provider(*, window: int = 32_000, turns: int = 20, binds: bool = False) -> Iterator[StrictProvider]:
    """A provider on a free port of this machine."""
    provider = StrictProvider(window, turns, binds=binds)
    with served(_Handler, provider=provider) as provider.url:
        yield provider


class _Handler(ReplyingHandler, BaseHTTPRequestHandler):
    provider: StrictProvider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.asked_bytes())
        path = self.path.split("?")[0]
        answer = next(answer for end, answer in ANSWERS.items() if path.endswith(end))
        status, reply = answer(self.provider, body)
        if status == 200 and body.get("stream"):
            self.send_bytes(_chat_events(reply), "text/event-stream")
        else:
            self.send_json(reply, status)


def _anthropic(provider: StrictProvider, body: Body) -> tuple[int, Body]:
    tokens, error = provider.judge("anthropic", body, body["messages"], body["max_tokens"])
    if error:
        return 400, {"type": "error", "error": {"type": "invalid_request_error", "message": error}}
    call = provider.next_call()
    content = provider.reasoning("anthropic", body)
    content.append({"type": "text", "text": "done" if call is None else "I read the next part."})
    if call:
        content.append({"type": "tool_use", "id": call[0], "name": call[1], "input": call[2]})
    return 200, {
        "id": f"msg_{len(provider.accepted)}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": "tool_use" if call else "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": tokens, "output_tokens": tokens_of(content)},
    }


def _openai_error(message: str) -> tuple[int, Body]:
    code = "context_length_exceeded" if "too long" in message else None
    return 400, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _chat(provider: StrictProvider, body: Body) -> tuple[int, Body]:
    tokens, error = provider.judge("openai-chat", body, body["messages"], body.get("max_completion_tokens", 0))
    if error:
        return _openai_error(error)
    call = provider.next_call()
    message: Body = {"role": "assistant", "content": None if call else "done", "refusal": None, "annotations": []}
    if call:
        function = {"name": call[1], "arguments": json.dumps(call[2])}
        message["tool_calls"] = [{"id": call[0], "type": "function", "function": function}]
    written = tokens_of(message)
    return 200, {
        "id": f"chatcmpl-{len(provider.accepted)}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": {"prompt_tokens": tokens, "completion_tokens": written, "total_tokens": tokens + written},
    }


def _chat_events(reply: Body) -> bytes:
    """A Chat Completion as server-sent events."""
    base = {**reply, "object": "chat.completion.chunk"}
    choice = reply["choices"][0]
    delta = {key: value for key, value in choice["message"].items() if key != "annotations"}
    calls = [{"index": place, **call} for place, call in enumerate(delta.pop("tool_calls", []))]
    chunks: list[Body] = [
        {**base, "usage": None, "choices": [{"index": 0, "delta": part, "finish_reason": None}]}
        for part in (delta, *({"tool_calls": [call]} for call in calls))
    ]
    chunks.append(
        {**base, "usage": None, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    )
    chunks.append({**base, "choices": []})
    return b"".join(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks) + b"data: [DONE]\n\n"


def _responses(provider: StrictProvider, body: Body) -> tuple[int, Body]:
    items = body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]
    tokens, error = provider.judge("openai-responses", body, items, body.get("max_output_tokens") or 0)
    if error:
        return _openai_error(error)
    call = provider.next_call()
    number = len(provider.accepted)
    text = {"type": "output_text", "text": "done", "annotations": []}
    item: Body = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": [text]}
    if call:
        item = {"id": f"fc_{number}", "type": "function_call", "call_id": call[0], "name": call[1]}
        item["arguments"] = json.dumps(call[2])
    usage = {"input_tokens": tokens, "output_tokens": tokens_of(item), "total_tokens": tokens + tokens_of(item)}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    return 200, {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_790_000_000,
        "status": "completed",
        "model": body["model"],
        "output": [*provider.reasoning("openai-responses", body), {**item, "status": "completed"}],
        "usage": {**usage, **details},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


ANSWERS: dict[str, Callable[[StrictProvider, Body], tuple[int, Body]]] = {
    "/messages": _anthropic,
    "/chat/completions": _chat,
    "/responses": _responses,
}
