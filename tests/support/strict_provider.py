"""A strict provider on loopback: refuses what its rules forbid and what exceeds its window, and keeps account of both.

It calls the tool `read_part` for a number of turns, then answers "done".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from contextstash.tokenizer import count_with
from tests.support.bound_reasoning import calls_without_reasoning, mismatched, reasoning_after
from tests.support.provider import Asked, Said, Sent, provider, refused
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

    def say(self, asked: Asked) -> Said | Sent:
        """The reply to a request, or the error with which it is refused."""
        fmt, body = asked.format, asked.body
        self.requests.append(body)
        tokens = tokens_of(body)
        if wrong := violations(fmt, asked.items):
            self.invalid.append(wrong[0])
            return refused(asked, wrong[0])
        limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        if tokens + next((body[name] for name in limits if body.get(name)), 0) > self.window:
            self.over.append(tokens)
            return refused(asked, f"prompt is too long: {tokens} tokens > {self.window} maximum")
        self.accepted.append(tokens)
        turn, thought = len(self.accepted), None
        if self.binds:
            self.mismatched.append(mismatched(fmt, body))
            self.bare.append(calls_without_reasoning(fmt, body))
            thought = reasoning_after(fmt, body, turn)
        call = (self.tool, {"n": turn}) if turn <= self.turns else None
        text = "done" if call is None else "I read the next part." if fmt == "anthropic" else ""
        return Said(text, call, thought, turn, tokens, 3 + tokens_of([text, list(call or ()), thought]))


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
    running = StrictProvider(window, turns, binds=binds)
    with provider(running.say) as running.url:
        yield running
