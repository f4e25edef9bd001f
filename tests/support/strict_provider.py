"""A strict provider on loopback: refuses what its rules forbid and what exceeds its window, and keeps account of both.

It calls the tool `read_part` for a number of turns, then answers "done". Its reasoning can be bound to all that stands
before it, as newer models' is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from contextstash.tokenizer import count_with
from tests.support.effort import THOROUGH
from tests.support.provider import Asked, Said, Sent, provider, refused
from tests.support.provider_rules import violations

NOT_BOUND = ("id", "status", "annotations", "cache_control")
"""What may differ from what was sent before."""


def reasoning_after(fmt: str, body: Body, number: int) -> Body | None:
    """The reasoning with which a reply to this request begins; None if the format has none."""
    if fmt == "anthropic":
        *_, bound = _prefixes_anthropic(body, [*body["messages"], {"role": "assistant", "content": []}])
        return {"type": "thinking", "thinking": f"Part {number} is next. " * 5, "signature": bound}
    if fmt == "openai-responses":
        *_, bound = _prefixes_responses(body, [*body["input"], {}])
        return {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": bound}
    return None


def mismatched(fmt: str, body: Body) -> int:
    """How many pieces of reasoning of a request stand behind something else than when they were written."""
    if fmt == "anthropic":
        prefixes = _prefixes_anthropic(body, body["messages"])
        pairs = zip(body["messages"], prefixes, strict=True)
        return sum(block["signature"] != bound for message, bound in pairs for block in _thinking(message))
    if fmt == "openai-responses":
        pairs = zip(body["input"], _prefixes_responses(body, body["input"]), strict=True)
        return sum(item.get("type") == "reasoning" and item["encrypted_content"] != bound for item, bound in pairs)
    return 0


def calls_without_reasoning(fmt: str, body: Body) -> frozenset[str]:
    """The calls of a request that stand without the reasoning that they were made with."""
    bare: set[str] = set()
    if fmt == "anthropic":
        for message in body["messages"]:
            if not any(True for _ in _thinking(message)):
                blocks = message["content"] if isinstance(message["content"], list) else []
                bare |= {block["id"] for block in blocks if block["type"] == "tool_use"}
    elif fmt == "openai-responses":
        thought = False
        for item in body["input"]:
            if item.get("type") == "function_call" and not thought:
                bare.add(item["call_id"])
            thought = item.get("type") == "reasoning"
    return frozenset(bare)


def _thinking(message: Body) -> Iterator[Body]:
    content = message["content"] if isinstance(message["content"], list) else []
    return (block for block in content if block["type"] == "thinking")


def _prefixes_anthropic(body: Body, messages: list[Body]) -> Iterator[str]:
    """What stands before each message, its own thinking aside."""
    chain = _hash("", [body.get("system"), body.get("tools")])
    for message in messages:
        yield chain
        content = message["content"]
        chain = _hash(
            chain, [message["role"], [{"type": "text", "text": content}] if isinstance(content, str) else content]
        )


def _prefixes_responses(body: Body, items: list[Body]) -> Iterator[str]:
    """What stands before each item. Reasoning itself is not part of it."""
    chain = _hash("", [body.get("tools")])
    for item in items:
        yield chain
        if item.get("type") != "reasoning":
            chain = _hash(chain, {"type": "message", **item})


def _hash(chain: str, value: Any) -> str:
    return hashlib.sha256(f"{chain}{json.dumps(_bound(value), sort_keys=True)}".encode()).hexdigest()


def _bound(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: _bound(inner)
            for key, inner in value.items()
            if key not in NOT_BOUND or value.get("type") == "tool_use"
        }
    return [_bound(inner) for inner in value] if isinstance(value, list) else value


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
            return refused(fmt, wrong[0])
        limits = ("max_tokens", "max_completion_tokens", "max_output_tokens")
        if tokens + next((body[name] for name in limits if body.get(name)), 0) > self.window:
            self.over.append(tokens)
            return refused(fmt, f"prompt is too long: {tokens} tokens > {self.window} maximum")
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
        return count(value)
    if isinstance(value, Mapping):
        return 3 + sum(map(tokens_of, value.values()))
    if isinstance(value, list):
        return sum(map(tokens_of, value))
    return 1


@cache
def count(text: str) -> int:
    return count_with("o200k_base")(text)


@contextmanager
def strict_provider(*, window: int = 32_000, turns: int = 20, binds: bool = False) -> Iterator[StrictProvider]:
    """A provider on a free port of this machine."""
    running = StrictProvider(window, turns, binds=binds)
    with provider(running.say) as running.url:
        yield running


def part_of_a_log(number: int, lines: int = 250) -> str:
    """About 4,000 tokens, each one different."""
    return "\n".join(f"{number}:{line} GET /loans/{line * number % 97} 200 in {line % 13} ms" for line in range(lines))


WINDOW = 32_000
TURNS = 100 if THOROUGH else 12
SYSTEM = "You read logs, part by part, until you know why."
QUESTION = "Why do loans fail?"


def read_part(n: int) -> str:
    """Read part n of the log."""
    return part_of_a_log(n)
