"""A pretended model API on loopback: Messages, Responses and Chat Completions, whole and streamed.

    with provider(lambda asked: Said("done")) as url: ...

What its model says is the test's part: a function that gets each request and returns what is said, or how it fails.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from typing import Any

Json = dict[str, Any]

FORMATS = {"messages": "anthropic", "responses": "openai-responses", "completions": "openai-chat"}
"""The formats by the end of their addresses."""

STOP_SECONDS = 0.01
"""How often a server looks whether it shall stop: each test waits for that."""

DELTA_CHARACTERS = 400

EVENTS = "text/event-stream; charset=utf-8"


@dataclass(frozen=True)
class Asked:
    """A request as it arrived; the names of its headers in small letters."""

    method: str
    target: str
    headers: Mapping[str, str]
    data: bytes

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def format(self) -> str:
        """The format of a request to a model; of others nothing."""
        return FORMATS.get(self.path.rpartition("/")[2], "") if self.method == "POST" else ""

    @cached_property
    def body(self) -> Json:
        found: Json = json.loads(self.data or b"{}")
        return found

    @cached_property
    def items(self) -> list[Json]:
        """The messages or items that it holds."""
        listed = self.body.get("messages") or self.body.get("input") or []
        return listed if isinstance(listed, list) else [{"role": "user", "content": listed}]

    @property
    def text(self) -> str:
        """What it says, as JSON."""
        return json.dumps(self.items, ensure_ascii=False)

    @property
    def outputs(self) -> list[Any]:
        """The outputs of tools that it holds."""
        found = []
        for item in self.items:
            content = item.get("content")
            if item.get("role") == "tool":
                found.append(content)
            elif str(item.get("type")).endswith("call_output"):
                found.append(item["output"])
            elif isinstance(content, list):
                found += [block["content"] for block in content if block.get("type") == "tool_result"]
        return found


@dataclass(frozen=True)
class Said:
    """A reply: `text`, a `call` of a tool by its name and arguments, or both, behind a `thought`. `more` are further
    fields of a Responses call, `item` is sent in place of a Responses item. If it `breaks_off`, the stream ends in its
    middle. It is held back until the event that it `waits_for` is set."""

    text: str = ""
    call: tuple[str, Json] | None = None
    thought: Json | None = None
    number: int = 0
    input_tokens: int = 100
    output_tokens: int = 5
    stop_reason: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)
    item: Json | None = None
    breaks_off: bool = False
    waits_for: threading.Event | None = None


@dataclass(frozen=True)
class Sent:
    """An answer that is no reply: a status with a body, as JSON, as it is, or in pieces."""

    status: int
    body: Json | bytes | Iterator[bytes]
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "application/json"


def refused(
    format: str,
    message: str = "told to fail",
    status: int = 400,
    error: str = "invalid_request_error",
    headers: Mapping[str, str] | None = None,
) -> Sent:
    """The refusal of a request, as its provider words it."""
    if format == "anthropic":
        return Sent(status, {"type": "error", "error": {"type": error, "message": message}}, headers or {})
    code = "context_length_exceeded" if "too long" in message else None
    return Sent(status, {"error": {"message": message, "type": error, "param": None, "code": code}}, headers or {})


Say = Callable[[Asked], Said | Sent]


@contextmanager
def served(say: Say) -> Iterator[str]:
    """The address of a server on a free port, which answers every request so."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"say": staticmethod(say)}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(STOP_SECONDS,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def provider(say: Say, others: list[tuple[str, str]] | None = None) -> Iterator[str]:
    """The address of a provider; `others` gets method and target of each request that is for no model."""

    def answer(asked: Asked) -> Said | Sent:
        if asked.format:
            return say(asked)
        if others is not None:
            others.append((asked.method, asked.target))
        return Sent(200, {"input_tokens": 10} if asked.method == "POST" else {})

    with served(answer) as url:
        yield url


SUMMARY = "## Progress\n- The parser was fixed in src/parser.py; the public API was not touched."


@dataclass
class Writer:
    """A running model that answers in turn, the last answer again and again, and remembers what it was asked. `asked`
    is set with the first request."""

    answers: list[Said | Sent]
    url: str = ""
    requests: list[Json] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def say(self, asked: Asked) -> Said | Sent:
        """The next answer."""
        self.requests.append(asked.body)
        self.keys.append(asked.headers.get("authorization") or asked.headers.get("x-api-key"))
        self.asked.set()
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def model_provider(*answers: Said | Sent) -> Iterator[Writer]:
    """A provider that answers in turn, by default with SUMMARY: for what has a model write."""
    running = Writer([*answers] or [Said(SUMMARY, input_tokens=1_200, output_tokens=90)])
    with provider(running.say) as running.url:
        try:
            yield running
        finally:
            for answer in answers:
                if isinstance(answer, Said) and answer.waits_for:
                    answer.waits_for.set()


class _Handler(BaseHTTPRequestHandler):
    say: Say
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:  # the client has gone, or an answer in pieces breaks off
            self.close_connection = True

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        asked = Asked(self.command, self.path, {name.lower(): value for name, value in self.headers.items()}, data)
        answer = self.say(asked)
        if isinstance(answer, Said):
            answer = self._reply(asked, answer)
        body = json.dumps(answer.body).encode() if isinstance(answer.body, dict) else answer.body
        size = {"content-length": str(len(body))} if isinstance(body, bytes) else {"transfer-encoding": "chunked"}
        self.send_response(answer.status)
        for name, value in {"content-type": answer.kind, **size, **answer.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if isinstance(body, bytes):
            self.wfile.write(b"" if self.command == "HEAD" else body)
            return
        for piece in chain(body, [b""]):
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            self.wfile.flush()

    do_GET = do_HEAD = do_DELETE = do_POST  # noqa: N815

    def _reply(self, asked: Asked, said: Said) -> Sent:
        if said.waits_for:
            said.waits_for.wait(60)
        reply = REPLIES[asked.format](asked.body["model"], said)
        if not asked.body.get("stream"):
            return Sent(200, reply)
        events = [event_bytes(event) for event in _EVENTS[asked.format](reply)]
        body = b"".join(events) + (b"data: [DONE]\n\n" if asked.format == "openai-chat" else b"")
        kept = b"".join(events[:3]) if said.breaks_off else body
        self.close_connection = said.breaks_off
        return Sent(200, kept, {"content-length": str(len(body))}, EVENTS)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def event_bytes(event: Json) -> bytes:
    """An event of a stream as it is sent."""
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


# The replies of the three formats, and their streams.


def _anthropic(model: str, said: Said) -> Json:
    content = [] if said.thought is None else [said.thought]
    if said.text or said.call is None:
        content.append({"type": "text", "text": said.text})
    if said.call is not None:
        name, arguments = said.call
        content.append({"type": "tool_use", "id": f"toolu_{said.number:020d}", "name": name, "input": arguments})
    return {
        "id": f"msg_{said.number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": said.stop_reason or ("tool_use" if said.call else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens},
    }


def anthropic_events(reply: Json) -> Iterator[Json]:
    """The stream of a reply of Messages."""
    begun = {**reply, "content": [], "stop_reason": None, "usage": {**reply["usage"], "output_tokens": 1}}
    yield {"type": "message_start", "message": begun}
    for place, block in enumerate(reply["content"]):
        kind = block["type"]
        if kind == "tool_use":
            empty = {**block, "input": {}}
            deltas: list[Json] = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        elif kind == "thinking":
            empty = {"type": kind, "thinking": "", "signature": ""}
            deltas = [{"type": f"{name}_delta", name: block[name]} for name in ("thinking", "signature")]
        else:
            empty, text = {"type": kind, "text": ""}, block["text"]
            parts = [text[start : start + DELTA_CHARACTERS] for start in range(0, len(text), DELTA_CHARACTERS)]
            deltas = [{"type": "text_delta", "text": part} for part in parts]
        yield {"type": "content_block_start", "index": place, "content_block": empty}
        yield from ({"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": place}
    end = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": reply["usage"]["output_tokens"]}}
    yield {"type": "message_stop"}


def _responses(model: str, said: Said) -> Json:
    number, output = said.number, [] if said.thought is None else [said.thought]
    done = {"status": "completed"}
    if said.item is not None:
        output.append(said.item)
    elif said.call is not None:
        call = {"id": f"fc_{number}", "type": "function_call", "call_id": f"call_{number:06}", "name": said.call[0]}
        output.append(call | {"arguments": json.dumps(said.call[1])} | done | dict(said.more))
    else:
        content = [{"type": "output_text", "text": said.text, "annotations": []}]
        output.append({"id": f"msg_{number}", "type": "message", "role": "assistant", "content": content} | done)
    usage: Json = {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens}
    details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    answer: Json = {"id": f"resp_{number}", "object": "response", "created_at": 1_790_000_000, "model": model}
    answer |= done | {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    return {**answer, "usage": {**usage, "total_tokens": sum(usage.values()), **details}}


def _response_events(reply: Json) -> Iterator[Json]:
    events: list[Json] = [{"type": "response.created", "response": {**reply, "output": [], "status": "in_progress"}}]
    for place, item in enumerate(reply["output"]):
        kinds = ("response.output_item.added", "response.output_item.done")
        events += [{"type": kind, "output_index": place, "item": item} for kind in kinds]
    events.append({"type": "response.completed", "response": reply})
    return ({**event, "sequence_number": at} for at, event in enumerate(events))


def _chat(model: str, said: Said) -> Json:
    message: Json = {"role": "assistant", "content": said.text or None, "refusal": None, "annotations": []}
    if said.call is not None:
        function = {"name": said.call[0], "arguments": json.dumps(said.call[1])}
        message["tool_calls"] = [{"id": f"call_{said.number:06}", "type": "function", "function": function}]
    given, written = said.input_tokens, said.output_tokens
    return {
        "id": f"chatcmpl-{said.number}",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if said.call else "stop"}],
        "usage": {"prompt_tokens": given, "completion_tokens": written, "total_tokens": given + written},
    }


def _chat_events(reply: Json) -> Iterator[Json]:
    base, choice = {**reply, "object": "chat.completion.chunk"}, reply["choices"][0]
    delta = {key: value for key, value in choice["message"].items() if key != "annotations"}
    calls = [{"index": place, **call} for place, call in enumerate(delta.pop("tool_calls", []))]
    for part in (delta, *({"tool_calls": [call]} for call in calls)):
        yield {**base, "usage": None, "choices": [{"index": 0, "delta": part, "finish_reason": None}]}
    yield {**base, "usage": None, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]}
    yield {**base, "choices": []}


REPLIES = {"anthropic": _anthropic, "openai-responses": _responses, "openai-chat": _chat}
_EVENTS: dict[str, Callable[[Json], Iterator[Json]]] = {
    "anthropic": anthropic_events,
    "openai-responses": _response_events,
    "openai-chat": _chat_events,
}
