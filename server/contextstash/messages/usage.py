"""Token usage as any provider reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Usage

_MAX_COUNT = 2**53
"""Larger numbers are not token counts, and not all JSON parsers represent them exactly (IEEE 754 doubles)."""

_FIELDS = {
    "prompt_tokens": "promptTokenCount prompt_token_count prompt_tokens input_tokens",
    "completion_tokens": "candidatesTokenCount candidates_token_count completion_tokens output_tokens",
    "reasoning_tokens": (
        "completion_tokens_details.reasoning_tokens output_tokens_details.reasoning_tokens reasoning_output_tokens"
        " reasoning_tokens"
    ),
    "cached_tokens": (
        "prompt_tokens_details.cached_tokens input_tokens_details.cached_tokens cached_input_tokens"
        " prompt_cache_hit_tokens cachedContentTokenCount cached_content_token_count cache_read_input_tokens"
        " cached_tokens"
    ),
    "cache_write_tokens": (
        "prompt_tokens_details.cache_write_tokens input_tokens_details.cache_write_tokens cache_creation_input_tokens"
        " cache_write_tokens"
    ),
    "cache_write_1h_tokens": "cache_creation.ephemeral_1h_input_tokens cache_write_1h_tokens",
}
"""By field of a Usage, those of Gemini (as the REST API and the SDK spell them), Chat Completions (with DeepSeek's),
Responses, Codex, Anthropic and contextstash itself: the first one counts that is not 0. Left out is Gemini's
`toolUsePromptTokenCount`: what the provider's own tools added for this one request is not in the contents of the next.
"""


def read_usage(data: Mapping[str, Any]) -> Usage | None:
    """The usage in the form of any provider; None if it has none.

    Anthropic does not include cached tokens in `input_tokens`; all others do. Gemini counts the thoughts of a reply
    apart from it. A prompt of 0 tokens is not a report: Claude Code writes it on replies that it generates without a
    model.
    """
    counts = {name: _count(data, places) for name, places in _FIELDS.items()}
    if "prompt_tokens" not in data and ("cache_read_input_tokens" in data or "cache_creation_input_tokens" in data):
        counts["prompt_tokens"] += counts["cached_tokens"] + counts["cache_write_tokens"]
    counts["completion_tokens"] += _count(data, "thoughtsTokenCount thoughts_token_count")
    return Usage(**counts) if counts["prompt_tokens"] > 0 else None


def with_cache(usage: Usage, read: int, written: int, *, long: bool = False) -> Usage:
    """The usage with so many tokens read from the cache and written to it; of these, the same share is kept for an hour
    as in the usage, or all of them or none (`long`) if that wrote nothing."""
    before = usage.cache_write_tokens
    share = usage.cache_write_1h_tokens / before if before else float(long)
    kept = {"cache_write_tokens": written, "cache_write_1h_tokens": round(written * share)}
    return usage.model_copy(update={"cached_tokens": read, **kept})


def reported_usage(data: object) -> Usage:
    """The usage that a caller passes. Raises BadInputError if it has no known form."""
    usage = read_usage(data) if isinstance(data, Mapping) else None
    if usage is None:
        raise BadInputError(
            "usage must be as the provider reported it: {'input_tokens': …, 'output_tokens': …},"
            " {'prompt_tokens': …, 'completion_tokens': …} or {'promptTokenCount': …, 'candidatesTokenCount': …}."
        )
    return usage


def _count(data: Mapping[str, Any], places: str) -> int:
    """The first count at these places, each a field, or a field inside another one; 0 if there is none."""
    for place in places.split():
        outer, _, inner = place.partition(".")
        value = data.get(outer)
        if inner:
            value = value.get(inner) if isinstance(value, Mapping) else None
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MAX_COUNT:
            return value
    return 0
