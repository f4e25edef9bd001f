"""The presets: five context managers with their own numbers, the default, and variants for cost and for quality.

The five reproduce existing context managers. Their numbers are a contract, which the design document of the project
states and tests pin: they are not tuned here. The unit of a number is in its setting's name, or in a comment; `_at`
without a unit is a share of the usable window.
"""

from __future__ import annotations

from typing import Any

NO_PERCENTAGES: dict[str, Any] = {"prune_at": 1.0, "compact_at": 1.0, "critical_at": 1.0}
"""For systems without thresholds as shares: each threshold is the whole usable window."""

PRUNES_WHATEVER_IT_SAVES: dict[str, Any] = {
    "prune_protect_tokens": 0,
    "prune_minimum_tokens": 0,
    "prune_smallest_tokens": 0,
}
"""For systems whose prunes consider neither the size of an output nor the saving; in tokens."""

SEPARATE_STEPS: dict[str, Any] = {
    # no common low-water mark: pruning and compaction have limits of their own
    "low_water": None,
    # tokens; none of the five designs states a length, this is near what large models wrote in recorded sessions
    "summary_tokens": 2_500,
}
"""For systems that prune and compact separately."""

STAGED: dict[str, Any] = {
    **SEPARATE_STEPS,
    # characters / 4 + 1
    "estimator": "chars_plus_one",
    "anchored": False,
    "message_overhead": 0,
    # tokens; the thresholds are shares of it, since the design has no output reserve
    "window": 180_000,
    "output_reserve": 0,
    **PRUNES_WHATEVER_IT_SAVES,
    "prune_at": 0.70,
    # outputs: 5 above the prune threshold, 2 if that does not get below the compaction threshold
    "prune_keep_last": 5,
    "prune_keep_last_hard": 2,
    "placeholder": "[contextstash: output pruned to save context, kept as {handle}]",
    "compact_at": 0.85,
    "critical_at": 0.95,
    "compact_keep_tokens": 0,
    # in addition to the system messages
    "compact_keep_messages": 4,
    "summaries": "one",
    "summary_marker": "[Summary of the conversation so far]",
    "summary_prompt": "brief",
    "output_tokens": None,
    "output_bytes": 50_000,
    "output_cut": "middle",
}

TOKEN_BUDGET: dict[str, Any] = {
    **SEPARATE_STEPS,
    # characters / 4
    "estimator": "chars",
    "anchored": False,
    # tokens of an image, and of a message in addition to its content
    "image_tokens": 1_000,
    "message_overhead": 4,
    # tokens; 200,000 - 32,000 = 168,000 are usable
    "window": 200_000,
    "output_reserve": 32_000,
    "prune_at": 0.85,
    "prune_keep_last": 0,
    # tokens of the newest outputs, newest user turns, and tokens that a prune must free
    "prune_protect_tokens": 40_000,
    "prune_protect_turns": 2,
    "prune_minimum_tokens": 20_000,
    "prune_smallest_tokens": 0,
    "placeholder": "[contextstash: old tool output cleared, kept as {handle}]",
    "compact_at": 0.85,
    "critical_at": 1.0,
    "compact_keep_tokens": 0,
    "compact_keep_messages": 0,
    "summaries": "one",
    "summary_marker": "[Another model began this task and left this summary of its work; the state of its tools is"
    " still there. Build on it, do not repeat it.]",
    "summary_prompt": "handoff",
    "output_tokens": 2_500,
    "output_share": None,
    "output_cut": "middle",
}

ROLLING: dict[str, Any] = {
    **SEPARATE_STEPS,
    # ceil(characters / 4), added to the last reported usage
    "estimator": "chars_rounded_up",
    # tokens
    "image_tokens": 1_200,
    "message_overhead": 0,
    # tokens; compaction is due at the window less this reserve, else at 8,000 tokens, else at 50 messages
    "output_reserve": 16_384,
    "fallback_tokens": 8_000,
    "fallback_messages": 50,
    **NO_PERCENTAGES,
    **PRUNES_WHATEVER_IT_SAVES,
    # tool results in the view; the limits of their digests are in reduce/digests.py
    "prune_at_results": 10,
    "tool_digest": "llm",
    "placeholder": "[contextstash: tool result archived as {handle}]",
    "compact_when": "reached",
    "compact_keep": "either",
    # the messages count only if the tokens are 0
    "compact_keep_tokens": 20_000,
    "compact_keep_messages": 5,
    "summaries": "one",
    "summary_marker": "[Previous conversation summary]",
    "summary_prompt": "checkpoint",
    "summarizer_output_chars": 1_800,
    # 2,000 lines, 200 Ki characters and 50 KiB
    "output_lines": 2_000,
    "output_chars": 200 * 1024,
    "output_bytes": 50 * 1024,
    "output_tokens": None,
    "output_cut": "head_tail",
    "output_spill_chars": 200 * 1024,
}

N_OR_K: dict[str, Any] = {
    **SEPARATE_STEPS,
    "estimator": "tiktoken",
    "anchored": False,
    # tokens of a message in addition to its content, and of a list of messages
    "message_overhead": 4,
    "conversation_overhead": 3,
    "output_reserve": 4_096,
    **NO_PERCENTAGES,
    "prune_automatic": False,
    "compact_by_level": False,
    # N: messages since the last summary
    "messages_at": 30,
    # K: tokens
    "tokens_at": 128_000,
    "compact_keep_tokens": 0,
    # a request keeps as many, by `fit_keep_messages`
    "compact_keep_messages": 6,
    "summaries": "one",
    # share of the request's budget
    "summary_share": 0.30,
    "summary_prompt": "brief",
    "summarizer_output_chars": 500,
    "output_tokens": None,
    "fit_by": "leave_out",
    "fit_keep_messages": 6,
}

BYTE_BUDGET: dict[str, Any] = {
    **SEPARATE_STEPS,
    # bytes / 4
    "estimator": "bytes",
    "anchored": False,
    "message_overhead": 0,
    **NO_PERCENTAGES,
    **PRUNES_WHATEVER_IT_SAVES,
    # tokens: 50,000 bytes / 4
    "prune_at_tokens": 12_500,
    "prune_keep_last": 6,
    "placeholder": "[Previously viewed: {subject}, kept as {handle}]",
    "compact_automatic": False,
    "summaries": "one",
    "output_tokens": None,
    "output_bytes": 4_000,
    "output_cut": "head",
    "output_notice": "beside",
    # after a refused request; 7,500 tokens are 30,000 bytes / 4
    "recovery_keep_last": 3,
    "recovery_tokens": 7_500,
    "recovery_output_bytes": 1_000,
    "recovery_cut_always": True,
}

PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # The variants of `default` have smaller or larger limits in the same proportions; they are not measured.
    "default-cost": {
        "prune_at": 0.50,
        "compact_at": 0.70,
        "critical_at": 0.90,
        "low_water": 0.35,
        "prune_keep_last": 2,
        "output_tokens": 5_000,
        "summary_tokens": 1_500,
    },
    "default-quality": {
        "prune_at": 0.80,
        "compact_at": 0.95,
        "critical_at": 0.97,
        "low_water": 0.60,
        "prune_keep_last": 6,
        "output_tokens": 20_000,
        "summary_tokens": 4_000,
    },
    "staged": STAGED,
    "token-budget": TOKEN_BUDGET,
    "rolling": ROLLING,
    "n-or-k": N_OR_K,
    "byte-budget": BYTE_BUDGET,
    # The contract: 30,000 bytes / 4 and 4 outputs, or 80,000 bytes / 4 and 10 outputs.
    "byte-budget-cost": {**BYTE_BUDGET, "prune_at_tokens": 7_500, "prune_keep_last": 4},
    "byte-budget-quality": {**BYTE_BUDGET, "prune_at_tokens": 20_000, "prune_keep_last": 10},
}
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
