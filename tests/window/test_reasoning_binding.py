"""One place knows which models bind their reasoning to what stands before it."""

from __future__ import annotations

import pytest

from contextstash.window.reasoning_binding import CLAUDE, GPT, reasoning_binding


@pytest.mark.parametrize(
    "model",
    ["claude-opus-5-5", "anthropic/claude-sonnet-5.5", "claude-haiku-5-5-20261001", "claude-fable-5-1"],
)
def test_claude_binds_and_refuses(model: str) -> None:
    assert reasoning_binding(model) == CLAUDE


@pytest.mark.parametrize(
    "model", ["gpt-6.2-sol", "gpt-6.2-astra", "openai/gpt-6.2-sol-2026-11-17", "gpt-6-2-sol", "gpt-6.3", "gpt-7"]
)
def test_gpt_binds_and_drops_silently(model: str) -> None:
    assert reasoning_binding(model) == GPT


@pytest.mark.parametrize(
    "model",
    [
        "claude-opus-4-5", "claude-opus-5-1", "claude-fable-5", "claude-sonnet-4-5-20250929", "gpt-6-astra",
        "gpt-6.1-sol", "gpt-5.4", "gpt-5", "gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "gpt-6-2026-08-01", "gpt-oss-120b",
        "gemini-3-pro", "", None,
    ],
)  # fmt: skip
def test_other_models_bind_nothing(model: str | None) -> None:
    assert reasoning_binding(model) is None
