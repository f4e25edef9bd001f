"""Token usage as any provider reports it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contextstash_storage.errors import BadInputError
from contextstash_storage.records import Usage

_MAX_COUNT = 2**53
"""Larger numbers are not token counts, and not all JSON parsers represent them exactly (IEEE 754 doubles)."""


def read_usage(data: Mapping[str, Any]) -> Usage | None:
    """The usage in the form of Anthropic Messages, OpenAI Chat Completions (including DeepSeek's cache fields), OpenAI
    Responses, Gemini, Codex or contextstash itself; None if it has none of these forms.

    Anthropic does not include cached tokens in `input_tokens`; all others do. A prompt of 0 tokens is not a report:
    Claude Code writes it on replies that it generates without a model.
    """
    if _gemini_count(data, "promptTokenCount", "prompt_token_count"):
        usage = _gemini_usage(data)
    elif "prompt_tokens" in data:
        usage = _chat_usage(data)
    elif "cache_read_input_tokens" in data or "cache_creation_input_tokens" in data:
        usage = _anthropic_usage(data)
    elif "input_tokens" in data:
        usage = _responses_usage(data)
    else:
        return None
    return usage if usage.prompt_tokens > 0 else None


def reported_usage(data: Mapping[str, Any]) -> Usage:
    """The usage that a caller passes. Raises BadInputError if it has no known form."""
    usage = read_usage(data)
    if usage is None:
        raise BadInputError(
            "usage must be as the provider reported it: {'input_tokens': …, 'output_tokens': …},"
            " {'prompt_tokens': …, 'completion_tokens': …} or {'promptTokenCount': …, 'candidatesTokenCount': …}."
        )
    return usage


def cleared_tokens(response: Mapping[str, Any]) -> int:
    """The tokens of tool results that a response, or the event with which its stream ends, reports as cleared by
    Anthropic's context editing."""
    applied = _part(response, "context_management").get("applied_edits")
    edits = [edit for edit in applied if isinstance(edit, Mapping)] if isinstance(applied, list) else []
    return sum(_number(edit, "cleared_input_tokens") for edit in edits if "tool_uses" in str(edit.get("type")))


def _chat_usage(data: Mapping[str, Any]) -> Usage:
    details = _part(data, "prompt_tokens_details")
    return Usage(
        prompt_tokens=_number(data, "prompt_tokens"),
        completion_tokens=_number(data, "completion_tokens"),
        reasoning_tokens=_number(_part(data, "completion_tokens_details"), "reasoning_tokens")
        or _number(data, "reasoning_tokens"),
        cached_tokens=_number(details, "cached_tokens")
        or _number(data, "prompt_cache_hit_tokens")
        or _number(data, "cached_tokens"),
        cache_write_tokens=_number(details, "cache_write_tokens") or _number(data, "cache_write_tokens"),
    )


def _anthropic_usage(data: Mapping[str, Any]) -> Usage:
    read = _number(data, "cache_read_input_tokens")
    written = _number(data, "cache_creation_input_tokens")
    return Usage(
        prompt_tokens=_number(data, "input_tokens") + read + written,
        completion_tokens=_number(data, "output_tokens"),
        cached_tokens=read,
        cache_write_tokens=written,
    )


def _responses_usage(data: Mapping[str, Any]) -> Usage:
    details = _part(data, "input_tokens_details")
    cached = _number(details, "cached_tokens")
    return Usage(
        prompt_tokens=_number(data, "input_tokens"),
        completion_tokens=_number(data, "output_tokens"),
        reasoning_tokens=_number(_part(data, "output_tokens_details"), "reasoning_tokens")
        or _number(data, "reasoning_output_tokens"),
        cached_tokens=cached or _number(data, "cached_input_tokens"),
        cache_write_tokens=_number(details, "cache_write_tokens"),
    )


def _gemini_usage(data: Mapping[str, Any]) -> Usage:
    """The thoughts of a reply are counted apart from it. Left out is `toolUsePromptTokenCount`: what the provider's own
    tools added for this one request is not in the contents of the next."""
    thoughts = _gemini_count(data, "thoughtsTokenCount", "thoughts_token_count")
    return Usage(
        prompt_tokens=_gemini_count(data, "promptTokenCount", "prompt_token_count"),
        completion_tokens=_gemini_count(data, "candidatesTokenCount", "candidates_token_count") + thoughts,
        cached_tokens=_gemini_count(data, "cachedContentTokenCount", "cached_content_token_count"),
    )


def _gemini_count(data: Mapping[str, Any], rest: str, sdk: str) -> int:
    """A count by its name in the REST API or in Google's Python SDK."""
    return _number(data, rest) or _number(data, sdk)


def _part(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = data.get(key)
    return value if isinstance(value, Mapping) else {}


def _number(data: Mapping[str, Any], key: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return value if 0 < value < _MAX_COUNT else 0
