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
from typing import Any

Json = dict[str, Any]

FORMATS = {"messages": "anthropic", "responses": "openai-responses", "completions": "openai-chat"}
"""The formats by the end of their addresses; every other address gets OTHER."""

OTHER: Json = {"input_tokens": 10}

STOP_SECONDS = 0.01
"""How often a server looks whether it shall stop: each test waits for that."""

DELTA_CHARACTERS = 400


@dataclass(frozen=True)
class Asked:
    """A request that the provider got."""

    path: str
    format: str
    headers: Mapping[str, str]
    body: Json
    size: int

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
    middle."""

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


@dataclass(frozen=True)
class Sent:
    """An answer that is no reply: a status with a body, as JSON or as it is."""

    status: int
    body: Json | bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    kind: str = "application/json"


def refused(asked: Asked, message: str, status: int = 400, error: str = "invalid_request_error") -> Sent:
    """The refusal of a request, as its provider words it."""
    if asked.format == "anthropic":
        return Sent(status, {"type": "error", "error": {"type": error, "message": message}})
    code = "context_length_exceeded" if "too long" in message else None
    return Sent(status, {"error": {"message": message, "type": error, "param": None, "code": code}})


Say = Callable[[Asked], Said | Sent]


@contextmanager
def served(handler: type[BaseHTTPRequestHandler], **attributes: object) -> Iterator[str]:
    """The address of a server on a free port, whose requests this handler answers; `attributes` are set on its
    class."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (handler,), dict(attributes)))
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
    """The address of a provider; `others` gets method and path of each request that is for no model."""
    with served(_Handler, say=staticmethod(say), others=[] if others is None else others) as url:
        yield url


class ReplyingHandler(BaseHTTPRequestHandler):
    """Sends JSON, events or bytes, and logs nothing."""

    protocol_version = "HTTP/1.1"

    def asked_bytes(self) -> bytes:
        """The body of the request."""
        return self.rfile.read(int(self.headers.get("content-length") or 0))

    def send_json(self, value: Json, status: int = 200) -> None:
        self.send_bytes(json.dumps(value).encode(), "application/json", status)

    def send_bytes(self, body: bytes, kind: str, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class _Handler(ReplyingHandler):
    say: Say
    others: list[tuple[str, str]]

    def do_GET(self) -> None:
        self.others.append(("GET", self.path))
        self.send_json({})

    def do_POST(self) -> None:
        data = self.asked_bytes() or b"{}"
        fmt = FORMATS.get(self.path.partition("?")[0].rpartition("/")[2])
        if fmt is None:
            self.others.append(("POST", self.path))
            self.send_json(OTHER)
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.path, fmt, headers, json.loads(data), len(data))
        answer = self.say(asked)
        try:
            self._answer(asked, answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, asked: Asked, answer: Said | Sent) -> None:
        if isinstance(answer, Sent):
            body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            self.send_bytes(body, answer.kind, answer.status, answer.headers)
            return
        reply = _REPLIES[asked.format](asked.body["model"], answer)
        if not asked.body.get("stream"):
            self.send_json(reply)
            return
        events = [event_bytes(event) for event in _EVENTS[asked.format](reply)]
        body = b"".join(events) + (b"data: [DONE]\n\n" if asked.format == "openai-chat" else b"")
        length = {"content-length": str(len(body))}
        kept = b"".join(events[:3]) if answer.breaks_off else body
        self.close_connection = answer.breaks_off
        self.send_bytes(kept, "text/event-stream", headers=length)


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


_REPLIES = {"anthropic": _anthropic, "openai-responses": _responses, "openai-chat": _chat}
_EVENTS: dict[str, Callable[[Json], Iterator[Json]]] = {
    "anthropic": anthropic_events,
    "openai-responses": _response_events,
    "openai-chat": _chat_events,
}


SUMMARY = "## Progress\n- The parser was fixed in src/parser.py; the public API was not touched."


@dataclass
class Answer:
    """What the provider does with one request: streams `text`, or answers `status` with an error of type `error`.

    `breaks_off` closes the connection in mid-stream; `waits_for` holds the answer back until it is set; `raw` is sent
    as it is, as `raw_type`.
    """

    text: str = SUMMARY
    stop_reason: str = "end_turn"
    status: int = 200
    error: str = "api_error"
    message: str = "told to fail"
    headers: dict[str, str] = field(default_factory=dict)
    breaks_off: bool = False
    waits_for: threading.Event | None = None
    raw: bytes | None = None
    raw_type: str = "application/json"

    def to(self, asked: Asked) -> Said | Sent:
        """The answer to a request."""
        if self.raw is not None:
            return Sent(self.status, self.raw, kind=self.raw_type)
        if self.status != 200:
            return Sent(self.status, refused(asked, self.message, error=self.error).body, self.headers)
        given, written = 1_200, 90
        return Said(self.text, None, None, 1, given, written, self.stop_reason, breaks_off=self.breaks_off)


@dataclass
class Provider:
    """The running provider: answers in turn, the last one again and again, and remembers what it was asked. `asked` is
    set with the first request."""

    answers: list[Answer]
    url: str = ""
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def say(self, asked: Asked) -> Said | Sent:
        """The next answer."""
        self.requests.append(asked.body)
        self.keys.append(asked.headers.get("authorization") or asked.headers.get("x-api-key"))
        self.asked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer.waits_for:
            answer.waits_for.wait(60)
        return answer.to(asked)


@contextmanager
def model_provider(*answers: Answer) -> Iterator[Provider]:
    """A provider on a free port of this machine."""
    running = Provider(list(answers) or [Answer()])
    with provider(running.say) as running.url:
        try:
            yield running
        finally:
            for answer in answers:
                if answer.waits_for:
                    answer.waits_for.set()
