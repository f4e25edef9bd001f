"""Models by name: context windows and prices, from genai-prices, and whether they bind their reasoning."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import lru_cache

from contextstash_storage.records import Usage

DEFAULT_WINDOW = 200_000
"""Tokens; the window of an unknown model. It is that of Claude models without
the long window; in a smaller one the provider's error corrects it."""

MAX_CACHED_MODELS = 256
"""How many models' windows are cached: a lookup takes milliseconds. Limited, because callers may name any number of
models."""

MAX_NAME_CHARACTERS = 200
"""No model has a longer name. Longer ones are not looked up, because genai-prices caches every name."""

OTHER_SELLERS = frozenset({
    "amazon", "azure_ai", "bedrock", "converse", "deepseek-ai", "gemini", "meta-llama", "mistralai", "models", "vertex",
    "vertex_ai", "xai",
})  # fmt: skip
"""Prefixes of names that stand for a provider with list prices, in addition to the price table's names of providers. A
model with any other prefix has no price."""


@lru_cache(MAX_CACHED_MODELS)
def window_of(model: str | None) -> int | None:
    """A model's window in tokens by its name, in any of the forms that providers and gateways give it; None if it is
    not known. Never fails."""
    if model is None or "[1m]" in model:
        return None if model is None else 1_000_000
    from genai_prices.data_snapshot import get_snapshot

    for name in _names(model):
        with suppress(LookupError):
            return get_snapshot().find_provider_model(name, None, None, None)[1].context_window or None
    return None


def price_of(model: str | None, usage: Usage) -> float | None:
    """The cost of a call in US dollars; None if the model's price is not known."""
    if model is None:
        return None
    from genai_prices import Usage as PricedUsage
    from genai_prices import calc_price

    for name in _priced_names(model):
        try:
            priced = calc_price(
                PricedUsage(
                    input_tokens=usage.prompt_tokens,
                    output_tokens=usage.completion_tokens,
                    cache_read_tokens=usage.cached_tokens,
                    cache_write_tokens=usage.cache_write_tokens,
                    cache_write_1h_tokens=min(usage.cache_write_1h_tokens, usage.cache_write_tokens),
                ),
                model_ref=name,
            )
        except (LookupError, ValueError):
            continue
        return float(priced.total_price)
    return None


@lru_cache(MAX_CACHED_MODELS)
def _priced_names(model: str) -> list[str]:
    """The forms of a name under which the price table lists the model. None if something other than a provider of the
    table serves the model: free variants and local models do not cost the list price."""
    from genai_prices.data_snapshot import get_snapshot

    sellers = {provider.id for provider in get_snapshot().providers} | OTHER_SELLERS
    prefixes = model.strip().lower().split("/")[:-1]
    is_listed = model.lower().startswith("arn:aws:bedrock:") or sellers.issuperset(prefixes)
    return _names(model) if is_listed and not model.endswith(":free") else []


def _names(model: str) -> list[str]:
    """The name and its simpler forms: without gateway prefixes, regions, versions and dates; none if it is
    too long to be a name."""
    if len(model) > MAX_NAME_CHARACTERS:
        return []
    name = model.strip().lower().removesuffix("[1m]")
    plain = name.rsplit("/", 1)[-1]
    plain = re.sub(r"^(?:[a-z]{2,6}\.)?(?:anthropic|meta|amazon|mistral|deepseek|openai|google)\.", "", plain)
    plain = re.sub(r"-v\d+(?::\d+)?$", "", plain)
    undated = re.sub(r"[-@](?:20\d{6}|20\d\d-\d\d-\d\d|latest)$", "", plain)
    return list(dict.fromkeys((name, plain, undated)))


CLAUDE = "anthropic"
"""The API refuses a request with reasoning that does not match, unless the request asks it to drop that. Accounts
created before 2026-08-31 are checked on most models only if the request asks for it, which is unknown here: treated as
checked, they lose old thinking at a compaction and nothing else."""

GPT = "openai-responses"
"""The API drops reasoning that does not match silently; its response lists what was dropped in
`input_transformations`. Chat Completions takes no reasoning back."""

_CLAUDE = re.compile(
    r"claude-(?:(?:fable|mythos)-(?:5-[1-9]|[6-9]|[1-9]\d)|(?:opus|sonnet|haiku)-(?:5-[5-9]|[6-9]|[1-9]\d))(?!\d)"
)
"""Claude Fable and Mythos from 5.1 on, Opus, Sonnet and Haiku from 5.5 on."""

_GPT = re.compile(r"gpt-(\d{1,2})(?:[.-](\d{1,2})(?!\d))?(?!\d)")

FIRST_BINDING_GPT = (6, 2)
"""`gpt-6.2-astra` and `gpt-6.2-sol` are the first ones. Later versions are taken to bind too: to treat one that does
not as if it did costs only the prunes between compactions."""


def reasoning_binding(model: str | None) -> str | None:
    """The format in which the model's provider takes back reasoning that is bound to what stands before it; None if it
    binds none."""
    name = (model or "").lower()
    if _CLAUDE.search(name.replace(".", "-")):
        return CLAUDE
    found = _GPT.search(name)
    version = (int(found[1]), int(found[2] or 0)) if found else (0, 0)
    return GPT if version >= FIRST_BINDING_GPT else None
