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


OPENAI_OLD = ("gpt-4", "gpt-4-turbo", "gpt-4-0613", "gpt-4-1106-preview", "gpt-3.5-turbo")
OPENAI_NEW = ("gpt-5.4", "gpt-4o-2024-08-06", "gpt-4.5-preview", "o3-mini", "openai/o4-mini", "gpt-4.1")
CLAUDE_OLD = ("claude-opus-4-6", "claude-sonnet-4-20250514", "claude-3-7-sonnet-20250219")
CLAUDE_NEW = ("us.anthropic.claude-opus-4-7-v1:0", "claude-sonnet-5", "anthropic/claude-opus-4.8")
UNKNOWN = ("my-own-model", "foo3", "retro3-large", None)
FAMILIES = {"gpt-4": OPENAI_OLD, "gpt": OPENAI_NEW, "claude": CLAUDE_OLD, "claude-new": CLAUDE_NEW, "unknown": UNKNOWN}


@pytest.mark.parametrize(
    ("model", "family"),
    [("deepseek-chat", "deepseek"), *((model, family) for family, models in FAMILIES.items() for model in models)],
)
def test_the_family_of_a_model_follows_from_its_name(model: str | None, family: str) -> None:
    assert family_of(model).name == family


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 9_000}}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls -la"}}
CALLED = sum(map(count_with("o200k_base"), ("Bash", '{"command":"ls -la"}')))


@pytest.mark.parametrize(
    ("content", "settings", "found"),
    [("x" * 43, CHARS, 10 + 4), ([IMAGE], SETTINGS, 1_000 + 4), ([CALL], SETTINGS, CALLED + 4), ("", SETTINGS, 4)],
    ids=["characters / 4", "an image, whatever its bytes", "a call by its name and arguments", "nothing"],
)
def test_a_message_costs_its_contents_and_its_overhead(content: Any, settings: ContextSettings, found: int) -> None:
    assert tokens({"role": "user", "content": content}, settings) == [found]


def test_reasoning_that_only_the_provider_can_read_is_not_free() -> None:
    hidden = {"type": "redacted_thinking", "data": "A" * 400}
    assert tokens({"role": "assistant", "content": [hidden, {"type": "text", "text": "ok"}]}, SETTINGS)[0] > 4
