"""Usage as each provider reports it."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages.base import read_usage
from contextstash_storage.records import Usage

OPENAI = {"prompt_tokens": 100, "completion_tokens": 9}
ITEMS = {"input_tokens": 100, "output_tokens": 9}
WRITTEN = {"cached_tokens": 64, "cache_write_tokens": 30}
ANTHROPIC = {"input_tokens": 4, "output_tokens": 9}
CACHED = {"cache_read_input_tokens": 90, "cache_creation_input_tokens": 6}
GEMINI = {"promptTokenCount": 100, "candidatesTokenCount": 9, "totalTokenCount": 146}
GEMINIS_OTHERS = {"cachedContentTokenCount": 64, "thoughtsTokenCount": 30, "toolUsePromptTokenCount": 7}
SNAKE = {"prompt_token_count": 100, "candidates_token_count": 9, "thoughts_token_count": None}
OURS = Usage(prompt_tokens=7, cached_tokens=3).model_dump()


@pytest.mark.parametrize(
    ("data", "prompt", "completion", "cached", "written"),
    [
        pytest.param({**OPENAI, "prompt_tokens_details": {"cached_tokens": 64}}, 100, 9, 64, 0, id="Chat Completions"),
        pytest.param({**OPENAI, "prompt_cache_hit_tokens": 50}, 100, 9, 50, 0, id="DeepSeek"),
        pytest.param({**ITEMS, "input_tokens_details": {"cached_tokens": 64}}, 100, 9, 64, 0, id="Responses"),
        pytest.param({**ITEMS, "input_tokens_details": WRITTEN}, 100, 9, 64, 30, id="Responses, cache written"),
        pytest.param({**ITEMS, "cached_input_tokens": 64, "total_tokens": 109}, 100, 9, 64, 0, id="Codex"),
        pytest.param({**ANTHROPIC, **CACHED}, 100, 9, 90, 6, id="Anthropic"),
        pytest.param({**ANTHROPIC, "cache_read_input_tokens": None}, 4, 9, 0, 0, id="Anthropic, no cache"),
        pytest.param({**GEMINI, **GEMINIS_OTHERS}, 100, 39, 64, 0, id="Gemini"),
        pytest.param(SNAKE, 100, 9, 0, 0, id="Gemini's Python SDK"),
        pytest.param(OURS, 7, 0, 3, 0, id="our own record"),
    ],
)
def test_the_usage_of_each_provider_is_read(
    data: dict[str, Any], prompt: int, completion: int, cached: int, written: int
) -> None:
    expected = Usage(
        prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached, cache_write_tokens=written
    )
    assert read_usage(data) == expected


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"tokens": 5},
        {"prompt_tokens": "many"},
        {"prompt_tokens": True},
        {"prompt_tokens": -4},
        {"prompt_tokens": 10**30},
        {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0},
    ],
)
def test_a_report_without_prompt_tokens_is_not_usage(data: dict[str, Any]) -> None:
    assert read_usage(data) is None
