"""The size of `window="economic"` for a session, by its model's prices and its settings for compaction."""

from __future__ import annotations

from functools import lru_cache

from contextstash.context.window.economic_window import economic_window
from contextstash.context.window.settings import ContextSettings
from contextstash.context.window.thresholds import budget_of
from contextstash_storage.records import Usage

FIXED_STEP = 10_000
"""Tokens to which the fixed part is rounded up: the window of a session must not change with each tool that is added,
since all its other limits are shares of it."""


def economic_size(settings: ContextSettings, model: str | None, largest: int, fixed: int) -> int:
    """The window in tokens, of at most `largest`. `fixed` are the tokens that no reduction removes."""
    return _size(settings, model, largest, -(-fixed // FIXED_STEP) * FIXED_STEP)


@lru_cache(64)  # some hundred looked up prices, 0.1 s; as many kinds of sessions as one process serves
def _size(settings: ContextSettings, model: str | None, largest: int, fixed: int) -> int:
    def cycle(tokens: int) -> tuple[int, int]:
        budget = budget_of(settings, tokens, fixed=fixed)
        kept = budget.summary_tokens + budget.compact_keep_tokens + fixed
        return min(budget.compact_at, budget.tokens_at or budget.compact_at), budget.low_water or kept

    from contextstash.configuration.windows_and_prices import price_of

    def price(usage: Usage) -> float:
        known = price_of(model, usage)
        return _usual(usage) if known is None else known

    return economic_window(largest, fixed, cycle, price)


def _usual(usage: Usage) -> float:
    """The price by the usual ratios, of a model whose own is not known."""
    read, written = usage.cached_tokens, usage.cache_write_tokens
    return 0.1 * read + 1.25 * written + usage.prompt_tokens - read - written
