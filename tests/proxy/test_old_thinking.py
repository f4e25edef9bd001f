"""Thinking of earlier turns, where the API bills it with each request and binds nothing."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.context.view.thinking_blocks import bills_old_thinking
from tests.support.caching_provider import CachingProvider
from tests.support.proxies import ID, OLD, Clock, RunningProxy, placeholders, play, request_of, session, turn

OPUS = "claude-opus-4-6"


def thoughtful(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation, in which the model thinks before each reply, and the user asks for something else after it."""
    thought = {"type": "thinking", "thinking": "", "signature": "s" * 4_000}
    found = [
        {**message, "content": [thought, *message["content"]]} if message["role"] == "assistant" else message
        for message in messages
    ]
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "Fixed."}]}
    asked = {"role": "user", "content": "Now the next one."}
    [call, result] = turn(70, "short")
    return [*found, said, asked, {**call, "content": [thought, *call["content"]]}, result]


def thinking_at(body: dict[str, Any]) -> list[int]:
    """The messages that are sent with thinking."""
    return [
        place
        for place, message in enumerate(body["messages"])
        if any(block["type"] == "thinking" for block in message["content"] if isinstance(block, dict))
    ]


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"model": OPUS}, True),
        ({"model": OPUS, "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}}, True),
        ({"model": OPUS, "context_management": {"edits": [{"type": "clear_thinking_20251015"}]}}, False),
        ({"model": "claude-sonnet-4-5"}, False),
    ],
)
def test_it_leaves_with_a_batch_of_outputs_but_not_in_the_turn_that_goes_on(
    provider: CachingProvider, proxy: RunningProxy, clock: Clock, fields: dict[str, Any], left: bool
) -> None:
    messages = thoughtful(session(8))
    play(proxy, clock, messages[:-2], **fields)
    everywhere = thinking_at(provider.bodies[-1])
    clock.now += 400
    play(proxy, clock, messages, first=len(messages), **fields)
    assert placeholders(provider.bodies[-1])[: len(OLD)] == OLD
    newest = len(messages) - 2
    assert thinking_at(provider.bodies[-1]) == ([newest] if left else [*everywhere, newest])
    messages += turn(80, "more")
    play(proxy, clock, messages, first=len(messages), **fields)
    assert thinking_at(provider.bodies[-1]) == ([newest] if left else [*everywhere, newest])
    assert provider.usage[-1]["cache_creation_input_tokens"] < 200
    assert proxy.state(ID).left_alone is None


def test_it_never_leaves_alone(provider: CachingProvider, proxy: RunningProxy, clock: Clock) -> None:
    messages = thoughtful([{"role": "user", "content": "Hi."}, *[m for n in range(8) for m in turn(n, "tiny")]])
    play(proxy, clock, messages[:-2], model=OPUS)
    clock.now += 400
    proxy.send(request_of(messages, model=OPUS))
    assert len(thinking_at(provider.bodies[-1])) == 10


def test_which_models_bill_it() -> None:
    billed = ("claude-opus-4-5-20251101", "claude-opus-4.8", "claude-sonnet-4-6", "claude-opus-5", "claude-fable-5")
    others = ("claude-opus-4-1", "claude-sonnet-4-5", "claude-haiku-4-5", "claude-opus-5-5", "claude-fable-5-2", None)
    assert [name for name in (*billed, *others) if bills_old_thinking(name)] == list(billed)
