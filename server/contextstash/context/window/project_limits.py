"""The settings that a project's file may change, and their bounds. The file is not trusted: the repository's author
wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from contextstash.context.window.presets import PRESETS
from contextstash.context.window.settings import ContextSettings, unknown_setting


class Bounds(NamedTuple):
    """The smallest and the largest value that a project may set; None if there is no bound."""

    minimum: float | None = None
    maximum: float | None = None


ANY = Bounds()

BOUNDS: Mapping[str, Bounds] = {
    # The presets are part of contextstash, so their texts and choices are trusted. A preset with a number outside these
    # bounds is refused, as the number itself would be.
    "preset": ANY,
    # Tokens: 32,000 is the smallest window in which coding agents have been run, 2,000,000 the largest that is offered.
    "window": Bounds(32_000, 2_000_000),
    # The largest reserve among the presets, that of `token-budget`.
    "output_reserve": Bounds(0, 32_000),
    # Tokens of the window of an unknown model: as for `window`. Messages: room for a few calls.
    "fallback_tokens": Bounds(32_000, 2_000_000),
    "fallback_messages": Bounds(20, 10_000),
    # Below three tenths of the usable window an agent would keep reading the same files again.
    "prune_at": Bounds(0.3, 1),
    # 30,000 bytes / 4, and 4 outputs: the strictest of the presets, `byte-budget-cost`.
    "prune_at_tokens": Bounds(7_500, 2_000_000),
    "prune_at_results": Bounds(4, 1_000),
    # What the agent read last, and what it compares that with.
    "prune_keep_last": Bounds(2, 1_000),
    "prune_keep_last_hard": Bounds(2, 1_000),
    # Tokens: two outputs of the smallest limit among the presets (4,000 bytes), with their calls.
    "prune_protect_tokens": Bounds(4_000, 2_000_000),
    "prune_protect_turns": Bounds(0, 1_000),
    "prune_minimum_tokens": Bounds(0, 2_000_000),
    "prune_smallest_tokens": Bounds(0, 100_000),
    # Characters: a shorter digest contains less than the placeholder.
    "digest_chars": Bounds(400, 10_000),
    "digest_heuristic_chars": Bounds(400, 10_000),
    # Half of the usable window, so that a compaction has enough to summarize.
    "compact_at": Bounds(0.5, 1),
    "compact_when": ANY,
    "critical_at": Bounds(0.5, 1),
    "messages_at": Bounds(10, 10_000),
    "tokens_at": Bounds(16_000, 2_000_000),
    # Below, a reduction keeps too little to work on; above, it would be due again at once.
    "low_water": Bounds(0.2, 0.8),
    "compact_keep": ANY,
    "compact_keep_tokens": Bounds(0, 200_000),
    "compact_keep_messages": Bounds(2, 1_000),
    "summaries": ANY,
    "summaries_share": Bounds(0.05, 0.5),
    # A hand-off summary with all its headings takes about 500 tokens; 8,000 is a quarter of the smallest window.
    "summary_tokens": Bounds(500, 8_000),
    "summary_share": Bounds(0.1, 1),
    "summary_audit_tokens": Bounds(0, 2_000),
    # Below, a hand-off does not hold the task and the state; 8,000 is the largest default.
    "handoff_tokens": Bounds(1_500, 8_000),
    # Head, tail and error lines of an output fit into 4,000 characters; no preset has a smaller limit. No output is
    # larger than the largest window, 2,000,000 tokens of about four characters.
    "output_lines": Bounds(50, 1_000_000),
    "output_chars": Bounds(4_000, 8_000_000),
    "output_bytes": Bounds(4_000, 8_000_000),
    "output_tokens": Bounds(1_000, 2_000_000),
    "output_spill_chars": Bounds(20_000, 8_000_000),
    "fit_keep_messages": Bounds(0, 100),
    # A recovery follows a refused request, so it may cut more: as much as `byte-budget` does.
    "recovery_keep_last": Bounds(1, 1_000),
    "recovery_tokens": Bounds(7_500, 2_000_000),
    "recovery_output_bytes": Bounds(1_000, 8_000_000),
}

SENDING = ("summarizer", "summarizer_base_url", "summarizer_model", "tool_digest")
"""Settings of a preset that say whether and where sessions are sent."""

TEXTS = ("placeholder", "summary_marker", "summary_prompt")


class Admitted(NamedTuple):
    """The settings of a project's file that are accepted, and those `refused`, each with the reason. `broken` are the
    names and values that would be invalid in any file."""

    settings: dict[str, Any]
    refused: dict[str, str]
    broken: dict[str, str]


MAX_PRINTED = 10**15
"""Larger numbers are not printed: a file may contain one of many thousand digits."""

MAX_HINTS = 3
"""For how many unknown names the nearest right one is searched. It takes about a millisecond, and a file may contain
thousands of them."""


def admit(values: Mapping[str, Any]) -> Admitted:
    """Sorts the settings of a project's file into accepted, refused and broken ones."""
    found = Admitted({}, {}, {})
    for name, value in values.items():
        if name not in ContextSettings.model_fields:
            hint = unknown_setting(name[:60]) if len(found.broken) < MAX_HINTS else ""
            found.broken[name] = hint.rstrip(".") if "Did you mean" in hint or "is called" in hint else "not a setting"
        elif name not in BOUNDS:
            found.refused[name] = _kind(name)
        elif problem := _unusable(name, value):
            found.broken[name] = problem
        elif problem := _preset_problem(value) if name == "preset" else _out_of_bounds(name, value):
            found.refused[name] = problem
        else:
            found.settings[name] = value
    return found


def _kind(name: str) -> str:
    if name.startswith("summarizer") or name == "tool_digest":
        return "whether and where sessions are sent"
    if name in TEXTS:
        return "text that the model reads"
    return "not a threshold or an amount to keep"


def _unusable(name: str, value: Any) -> str | None:
    """The reason why a value is invalid, None if it is valid."""
    # Nested values are not even printed: with aliases a small YAML file can expand to any size.
    if not isinstance(value, str | int | float | None):
        return "not a number or a word"
    if name == "preset":
        return None if value in PRESETS else f"not a preset; the presets are {', '.join(PRESETS)}"
    try:
        _as_setting(name, value)
    except ValidationError as error:
        return "; ".join(each["msg"] for each in error.errors())[:200]
    return None


def _as_setting(name: str, value: Any) -> Any:
    """A value after conversion to the setting's type. Raises ValidationError if it is invalid."""
    return getattr(ContextSettings(**{name: value}), name)


def _preset_problem(preset: str) -> str | None:
    """Why a project may not choose a preset: the first of its values that the project could not set itself."""
    for name, value in PRESETS[preset].items():
        if name in SENDING:
            return f"it sets {name}: {_kind(name)}"
        if name in BOUNDS and (problem := _out_of_bounds(name, value)):
            return f"it sets {name} to {problem}"
    return None


def _out_of_bounds(name: str, value: Any) -> str | None:
    minimum, maximum = BOUNDS[name]
    read = _as_setting(name, value)
    if not isinstance(read, int | float):
        return None
    if minimum is not None and read < minimum:
        return f"{_number(read)}, at least {_number(minimum)}"
    if maximum is not None and read > maximum:
        return f"{_number(read)}, at most {_number(maximum)}"
    return None


def _number(value: float) -> str:
    return f"{value:,}" if abs(value) < MAX_PRINTED else "a number of many digits"
