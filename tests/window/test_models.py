"""What is known of a model by the name that providers and gateways give it: window, price, bound reasoning."""

from __future__ import annotations

import pytest

from contextstash.window.models import CLAUDE, GPT, price_of, reasoning_binding, window_of
from contextstash_storage.records import Usage

USAGE = Usage(prompt_tokens=1_000)


@pytest.mark.parametrize("name", ["my-own-model", None, "claude-haiku-4-5" + "x" * 10_000])
def test_an_unknown_model_is_no_error_and_is_not_kept_by_the_price_list(name: str | None) -> None:
    from genai_prices.data_snapshot import get_snapshot

    assert window_of(name) is None
    assert price_of(name, USAGE) is None
    assert name is None or len(name) < 200 or name not in str(vars(get_snapshot()))


def test_the_long_window_of_claude_code_is_recognized_by_its_suffix() -> None:
    assert window_of("claude-opus-4-6[1m]") == 1_000_000


@pytest.mark.parametrize(
    "name", ["claude-sonnet-4-5:free", "deepseek/deepseek-r1:free", "local/gpt-4o", "ollama/openai/gpt-4o"]
)
def test_what_no_provider_of_the_price_table_serves_has_no_price(name: str) -> None:
    assert price_of(name, USAGE) is None


@pytest.mark.parametrize(
    "name",
    [
        "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "vertex_ai/claude-sonnet-4-5@20250929",
        "claude-sonnet-4-5-latest", "claude-sonnet-4-5[1m]",
    ],
)  # fmt: skip
def test_dates_versions_and_names_of_providers_do_not_change_the_price(name: str) -> None:
    assert price_of(name, USAGE) == price_of("claude-sonnet-4-5", USAGE) is not None
    if not name.endswith("[1m]"):
        assert window_of(name) == window_of("claude-sonnet-4-5")


BINDING: dict[str | None, tuple[str | None, ...]] = {
    CLAUDE: ("claude-opus-5-5", "anthropic/claude-sonnet-5.5", "claude-haiku-5-5-20261001", "claude-fable-5-1"),
    GPT: ("gpt-6.2-sol", "gpt-6.2-astra", "openai/gpt-6.2-sol-2026-11-17", "gpt-6-2-sol", "gpt-6.3", "gpt-7"),
    None: (
        "claude-opus-4-5", "claude-opus-5-1", "claude-fable-5", "claude-sonnet-4-5-20250929", "gpt-6-astra",
        "gpt-6.1-sol", "gpt-5.4", "gpt-5", "gpt-4o", "gpt-4.1", "gpt-3.5-turbo", "gpt-6-2026-08-01", "gpt-oss-120b",
        "gemini-3-pro", "", None,
    ),
}  # fmt: skip
"""Models by the format in which their provider takes back bound reasoning: Claude refuses it, GPT drops it silently."""


@pytest.mark.parametrize(("key", "model"), [(key, model) for key, models in BINDING.items() for model in models])
def test_which_models_bind_their_reasoning_to_what_stands_before_it(key: str | None, model: str | None) -> None:
    assert reasoning_binding(model) == key
