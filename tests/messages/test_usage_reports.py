"""Usage as each provider reports it."""

from __future__ import annotations

from typing import Any

import pytest

from contextstash.messages.usage import read_usage
from contextstash_storage.records import Usage


@pytest.mark.parametrize(
    ("data", "usage"),
    [
        (
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}},
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=64),
        ),
        (
            {"prompt_tokens": 100, "completion_tokens": 9, "prompt_cache_hit_tokens": 50},
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=50),
        ),
        (
            {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}},
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=64),
        ),
        (
            {
                "input_tokens": 100,
                "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 30},
                "output_tokens": 9,
            },
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=64, cache_write_tokens=30),
        ),
        (
            {"input_tokens": 100, "cached_input_tokens": 64, "output_tokens": 9, "total_tokens": 109},
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=64),
        ),
        (
            {
                "input_tokens": 4,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 6,
                "output_tokens": 9,
            },
            Usage(prompt_tokens=100, completion_tokens=9, cached_tokens=90, cache_write_tokens=6),
        ),
        (
            {"input_tokens": 4, "cache_read_input_tokens": None, "output_tokens": 9},
            Usage(prompt_tokens=4, completion_tokens=9),
        ),
        (
            {
                "promptTokenCount": 100,
                "cachedContentTokenCount": 64,
                "candidatesTokenCount": 9,
                "thoughtsTokenCount": 30,
                "toolUsePromptTokenCount": 7,
                "totalTokenCount": 146,
            },
            Usage(prompt_tokens=100, completion_tokens=39, cached_tokens=64),
        ),
        (
            {"prompt_token_count": 100, "candidates_token_count": 9, "thoughts_token_count": None},
            Usage(prompt_tokens=100, completion_tokens=9),
        ),
        (Usage(prompt_tokens=7, cached_tokens=3).model_dump(), Usage(prompt_tokens=7, cached_tokens=3)),
    ],
)
def test_the_usage_of_each_provider_is_read(data: dict[str, Any], usage: Usage) -> None:
    assert read_usage(data) == usage


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
