"""A model provider of our own on loopback, speaking the wire format of Anthropic's Messages API."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.support.loopback_server import served

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
    input_tokens: int = 1_200
    output_tokens: int = 90
    raw: bytes | None = None
    raw_type: str = "application/json"


@dataclass
class Provider:
    """The running provider: answers in turn, the last one again and again, and remembers what it was asked. `asked` is
    set with the first request."""

    url: str
    answers: list[Answer]
    requests: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)

    def next_answer(self) -> Answer:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@contextmanager
def model_provider(*answers: Answer) -> Iterator[Provider]:
    """A provider on a free port of this machine."""
    provider = Provider("", list(answers) or [Answer()])
    with served(_Handler, provider=provider) as provider.url:
        try:
            yield provider
        finally:
            for answer in answers:
                if answer.waits_for:
                    answer.waits_for.set()


class _Handler(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.provider.requests.append(json.loads(body))
        self.provider.keys.append(self.headers.get("authorization") or self.headers.get("x-api-key"))
        self.provider.asked.set()
        answer = self.provider.next_answer()
        if answer.waits_for:
            answer.waits_for.wait(60)
        try:
            if answer.raw is not None:
                self._send(answer.raw, {"content-type": answer.raw_type}, answer.status)
            elif answer.status == 200:
                self._stream(answer)
            else:
                self._fail(answer)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _fail(self, answer: Answer) -> None:
        content = {"type": "error", "error": {"type": answer.error, "message": answer.message}}
        body = json.dumps(content).encode()
        self._send(body, {"content-type": "application/json", **answer.headers}, answer.status)

    def _send(self, body: bytes, headers: dict[str, str], status: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, answer: Answer) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in _events(answer):
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            if answer.breaks_off and event["type"] == "content_block_delta":
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def _events(answer: Answer) -> Iterator[dict[str, Any]]:
    message: dict[str, Any] = {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-haiku-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": answer.input_tokens, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for start in range(0, len(answer.text), 400):
        delta = {"type": "text_delta", "text": answer.text[start : start + 400]}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": answer.stop_reason, "stop_sequence": None},
        "usage": {"output_tokens": answer.output_tokens},
    }
    yield {"type": "message_stop"}
