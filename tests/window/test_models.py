"""Windows and prices by the names that providers and gateways give a model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contextstash.window.models import CLAUDE, DEFAULT_WINDOW, GPT, model_facts, price_of, reasoning_binding
from contextstash_storage.records import Usage


def test_an_unknown_model_is_no_error() -> None:
    assert model_facts("my-own-model") == model_facts("my-own-model")
    assert (model_facts("my-own-model").window, model_facts("my-own-model").known) == (DEFAULT_WINDOW, False)
    assert model_facts(None).window == DEFAULT_WINDOW
    assert price_of("my-own-model", Usage(prompt_tokens=10)) is None


def test_the_long_window_of_claude_code_is_recognized_by_its_suffix() -> None:
    assert model_facts("claude-opus-4-6[1m]").window == 1_000_000


def test_a_name_too_long_for_a_model_is_no_model_and_is_not_kept_by_the_price_list() -> None:
    from genai_prices.data_snapshot import get_snapshot

    name = "claude-haiku-4-5" + "x" * 10_000
    assert not model_facts(name).known
    assert price_of(name, Usage(prompt_tokens=1_000)) is None
    assert name not in str(vars(get_snapshot()))


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5:free",
        "deepseek/deepseek-r1:free",
        "local/gpt-4o",
        "ollama/openai/gpt-4o",
    ],
)
def test_what_no_provider_of_the_price_table_serves_has_no_price(name: str) -> None:
    assert price_of(name, Usage(prompt_tokens=1_000)) is None


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5-20250929",
        "anthropic/claude-sonnet-4.5",
        "openrouter/anthropic/claude-sonnet-4.5",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "vertex_ai/claude-sonnet-4-5@20250929",
        "claude-sonnet-4-5-latest",
        "claude-sonnet-4-5[1m]",
    ],
)
def test_dates_versions_and_names_of_providers_do_not_change_the_price(name: str) -> None:
    usage = Usage(prompt_tokens=1_000)
    assert price_of(name, usage) == price_of("claude-sonnet-4-5", usage) is not None
    if not name.endswith("[1m]"):
        assert model_facts(name) == replace(model_facts("claude-sonnet-4-5"), model=name)


@pytest.mark.parametrize(
    "name", ["openai/gpt-4o-2024-08-06", "gpt-5.4", "google/gemini-2.5-pro", "deepseek/deepseek-r1"]
)
def test_models_of_other_providers_keep_their_price(name: str) -> None:
    assert price_of(name, Usage(prompt_tokens=1_000))


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
