"""A provider of Anthropic's Messages on loopback that answers in turn: for what has a model write."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.provider import Asked, Said, Sent, provider, refused

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
