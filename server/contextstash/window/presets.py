"""The presets of presets.toml by their names, and the names that other systems have for our settings."""

from __future__ import annotations

import tomllib
from pkgutil import get_data
from typing import Any

_TABLES = tomllib.loads((get_data(__package__, "presets.toml") or b"").decode())


def _values(table: dict[str, Any]) -> dict[str, Any]:
    merged = {**_TABLES.get(table.get("like", ""), {}), **table}
    return {name: None if value == "none" else value for name, value in merged.items() if name != "like"}


PRESETS: dict[str, dict[str, Any]] = {name: _values(table) for name, table in _TABLES.items()}
"""The values that differ from the default, by preset."""

NAMES_ELSEWHERE = {
    "max_messages_before_summary": "messages_at",
    "max_tokens_before_summary": "tokens_at",
    "response_reserve": "output_reserve",
    "auto_summarize": "compact_automatic",
    "model_context_limit": "window",
    "output_token_max": "output_reserve",
    "auto_compact_threshold": "compact_at",
    "prune_protect": "prune_protect_tokens",
    "max_output_tokens": "output_tokens",
    "max_tokens": "fallback_tokens",
    "keep_recent": "compact_keep_messages",
    "keep_recent_tokens": "compact_keep_tokens",
    "reserve_tokens": "output_reserve",
    "tool_call_cutoff": "prune_at_results",
    "tool_summary_strategy": "tool_digest",
    "auto_compact": "automatic",
    "max_context_tokens": "window",
    "keep_recent_tools": "prune_keep_last",
}
"""The settings of the systems that the presets reproduce, with our names; for the hint in an error."""
