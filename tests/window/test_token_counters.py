"""How many tokens a block of a message takes, and by which counter."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages.detection import get_format
from contextstash.tokenizer import count_with
from contextstash.window.settings import ContextSettings
from contextstash.window.token_counters import counter_for, family_of, measure
from contextstash_storage.records import Native

SETTINGS = ContextSettings(message_overhead=4, image_tokens=1_000)
CHARS = ContextSettings(estimator="chars", message_overhead=4, image_tokens=1_000)


def tokens(native: Native, settings: ContextSettings, model: str | None = None) -> list[int]:
    reading = get_format("anthropic").read(native)
    counter = counter_for(model, settings, count_with)
    return [block.tokens for block in measure(reading, counter, settings)]


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("gpt-5.4", "gpt"),
        ("gpt-4", "gpt-4"),
        ("gpt-4-turbo", "gpt-4"),
        ("gpt-4-0613", "gpt-4"),
        ("gpt-4-1106-preview", "gpt-4"),
        ("gpt-3.5-turbo", "gpt-4"),
        ("gpt-4o-2024-08-06", "gpt"),
        ("gpt-4.5-preview", "gpt"),
        ("o3-mini", "gpt"),
        ("openai/o4-mini", "gpt"),
        ("gpt-4.1", "gpt"),
        ("claude-opus-4-6", "claude"),
        ("claude-sonnet-4-20250514", "claude"),
        ("claude-3-7-sonnet-20250219", "claude"),
        ("us.anthropic.claude-opus-4-7-v1:0", "claude-new"),
        ("claude-sonnet-5", "claude-new"),
        ("anthropic/claude-opus-4.8", "claude-new"),
        ("deepseek-chat", "deepseek"),
        ("my-own-model", "unknown"),
        ("foo3", "unknown"),
        ("retro3-large", "unknown"),
        (None, "unknown"),
    ],
)
def test_the_family_of_a_model_follows_from_its_name(model: str | None, family: str) -> None:
    assert family_of(model).name == family


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls -la"}}
CALLED = sum(map(count_with("o200k_base"), ("Bash", '{"command":"ls -la"}')))


@pytest.mark.parametrize(
    ("content", "settings", "found"),
    [
        ("x" * 43, CHARS, 10 + 4),
        ([IMAGE], SETTINGS, 1_000 + 4),
        ([CALL], SETTINGS, CALLED + 4),
        ("", SETTINGS, 4),
    ],
    ids=["characters / 4", "an image, whatever its bytes", "a call by its name and arguments", "nothing"],
)
def test_a_message_costs_its_contents_and_its_overhead(content: Any, settings: ContextSettings, found: int) -> None:
    assert tokens({"role": "user", "content": content}, settings) == [found]


def test_reasoning_that_only_the_provider_can_read_is_not_free() -> None:
    hidden = {"type": "redacted_thinking", "data": "A" * 400}
    assert tokens({"role": "assistant", "content": [hidden, {"type": "text", "text": "ok"}]}, SETTINGS)[0] > 4
