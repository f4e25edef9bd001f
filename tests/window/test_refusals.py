"""Providers' refusals of requests that are too large, each with a real example, and errors that only look like one."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from contextstash.window.refusals import MAX_END_LENGTH, ContextOverflow, recognize


class Seen(NamedTuple):
    """What was seen at `source`, and the numbers in it."""

    source: str
    error: Any
    limit: int | None = None
    prompt: int | None = None
    reply: int | None = None


_ROWS = {
    table: [Seen(**row) for row in rows]
    for table, rows in tomllib.loads(Path(__file__).with_name("refusals.toml").read_text(encoding="utf-8")).items()
}
TOO_MANY_BYTES = _ROWS.pop("too_many_bytes")
"""Refusals of a request because of its bytes."""

LOOK_ALIKES = _ROWS.pop("look_alikes")
"""Errors about something else."""

SEEN = [seen for rows in _ROWS.values() for seen in rows]


def expected(seen: Seen) -> ContextOverflow:
    return ContextOverflow(seen.limit, seen.prompt, seen.reply)


@pytest.mark.parametrize("seen", SEEN, ids=lambda seen: seen.source)
def test_a_refusal_is_recognized_with_its_numbers_also_inside_any_wrapper(seen: Seen) -> None:
    assert recognize(seen.error) == expected(seen)
    body = json.dumps({"error": {"message": seen.error}})
    assert recognize({"status": 400, "headers": {"retry-after": "1"}, "body": body}) == expected(seen)
    assert recognize({"status": 400, "body": body.encode()}) == expected(seen)
    assert recognize(repr(RuntimeError(seen.error))) == expected(seen)
    traceback = 'Traceback (most recent call last):\n  File "agent.py", line 7\n' * 4_000
    assert recognize(f"{traceback}BadRequestError: {seen.error}") == expected(seen)


@pytest.mark.parametrize("seen", TOO_MANY_BYTES, ids=lambda seen: seen.source)
def test_a_request_with_too_many_bytes_does_not_reveal_the_window(seen: Seen) -> None:
    assert recognize(seen.error) == ContextOverflow(None, None, None, "bytes")


@pytest.mark.parametrize("seen", LOOK_ALIKES, ids=lambda seen: seen.source)
def test_an_error_that_only_looks_like_a_refusal_is_not_recognized(seen: Seen) -> None:
    assert recognize(seen.error) is None


READ: list[tuple[str | dict[str, Any], tuple[int | None, int | None]]] = [
    ({"error": {"code": "context_length_exceeded", "message": ""}}, (None, None)),
    ({"error": {"code": "model_max_prompt_tokens_exceeded"}}, (None, None)),
    ({"type": "error", "error": {"type": "exceed_context_size_error"}}, (None, None)),
    ({"type": "exceed_context_size_error", "n_prompt_tokens": 1407, "n_ctx": 256}, (256, 1407)),
    ({"n_ctx": 256, "n_prompt_tokens": 1407, "type": "exceed_context_size_error"}, (256, 1407)),
    ("litellm.ContextWindowExceededError: GroqException", (None, None)),
    ({"role": "assistant", "content": [], "stop_reason": "model_context_window_exceeded"}, (None, None)),
    ({"choices": [{"message": {}, "finish_reason": "model_context_window_exceeded"}]}, (None, None)),
    ("prompt is too long: 1,213,462 tokens > 200,000 maximum", (200_000, 1_213_462)),
    ("prompt is too long: 1_213_462 tokens > 200_000 maximum", (200_000, 1_213_462)),
    ("prompt is too long: 1.213.462 tokens > 200.000 maximum", (200_000, 1_213_462)),
    (r"400 {\"message\":\"prompt is too long: 7 tokens \u003e 5 maximum\"}", (5, 7)),
    ("RateLimitError on the first model. Fallback failed: prompt is too long: 9 tokens > 8 maximum", (8, 9)),
]
"""A type or a code suffices, numbers may be grouped, JSON escapes are decoded, a rate limit before it hides nothing."""


@pytest.mark.parametrize(("error", "found"), READ)
def test_a_refusal_is_read_in_each_of_its_forms(
    error: str | dict[str, Any], found: tuple[int | None, int | None]
) -> None:
    assert recognize(error) == ContextOverflow(*found, None)


def test_a_reply_reserve_that_takes_the_whole_window_is_detected() -> None:
    full = ContextOverflow(131_072, 7_884, 131_072)
    usual = ContextOverflow(200_000, 199_759, 8_192)
    assert full.reply_fills_window
    assert not usual.reply_fills_window
    assert not ContextOverflow(None, None, None).reply_fills_window


def test_a_megabyte_is_read_only_at_its_ends() -> None:
    refusal = "invalid_request_error: prompt is too long: 213462 tokens > 200000 maximum"
    overflow = ContextOverflow(200_000, 213_462, None)
    filling = "x" * 1_000_000
    assert recognize(refusal + filling) == overflow
    assert recognize(filling + " " + refusal) == overflow
    assert recognize(filling[:MAX_END_LENGTH] + refusal + filling) is None
    assert recognize("{" * 1_000_000) is None
    assert recognize({"error": {"message": filling + " " + refusal}}) == overflow
