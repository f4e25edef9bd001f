"""What a project's own file may set, and within which bounds: it comes from whoever wrote the repository."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from contextstash.context.window.presets import PRESETS
from contextstash.context.window.settings import ContextSettings, unknown_setting


class Bounds(NamedTuple):
    """The least and the most that a project may set; None for no bound of its own."""

    least: float | None = None
    most: float | None = None


ANY = Bounds()

BOUNDS: Mapping[str, Bounds] = {
    # The presets ship with contextstash, so their texts and choices are ours; one whose numbers are out of these bounds
    # is refused as they would be.
    "preset": ANY,
    # 32,000 tokens is the smallest window that coding agents have been run in; 2,000,000 the largest one on offer.
    "window": Bounds(32_000, 2_000_000),
    # The reserve of the preset with the largest one.
    "output_reserve": Bounds(0, 32_000),
    # The window of a model that is not known: as the window; with room for a few calls, 20 messages.
    "fallback_tokens": Bounds(32_000, 2_000_000),
    "fallback_messages": Bounds(20, 10_000),
    # Below three tenths of the window an agent would read its files again and again.
    "prune_at": Bounds(0.3, 1),
    # 30,000 bytes and 4 outputs: the hardest of the shipped presets, `byte-budget-cost`.
    "prune_at_tokens": Bounds(7_500, 2_000_000),
    "prune_at_results": Bounds(4, 1_000),
    # What the agent just read, and what it compares it with.
    "prune_keep_last": Bounds(2, 1_000),
    "prune_keep_last_hard": Bounds(2, 1_000),
    # Two outputs of the length that no preset cuts below, with their calls; a preset may protect no newest output.
    "prune_protect_tokens": Bounds(4_000, 2_000_000),
    "prune_protect_turns": Bounds(0, 1_000),
    "prune_minimum_tokens": Bounds(0, 2_000_000),
    "prune_smallest_tokens": Bounds(0, 100_000),
    # A digest shorter than this says less than the placeholder.
    "digest_chars": Bounds(400, 10_000),
    "digest_heuristic_chars": Bounds(400, 10_000),
    # Half of the window, so that a compaction has something to summarize.
    "compact_at": Bounds(0.5, 1),
    "compact_when": ANY,
    "critical_at": Bounds(0.5, 1),
    "messages_at": Bounds(10, 10_000),
    "tokens_at": Bounds(16_000, 2_000_000),
    "compact_keep": ANY,
    "compact_keep_tokens": Bounds(0, 200_000),
    "compact_keep_messages": Bounds(2, 1_000),
    "summaries": ANY,
    "summaries_share": Bounds(0.05, 0.5),
    # A hand-off with all its headings takes some 500 tokens; 8,000 is a quarter of the smallest window.
    "summary_tokens": Bounds(500, 8_000),
    "summary_share": Bounds(0.1, 1),
    "summary_audit_tokens": Bounds(0, 2_000),
    # An output's head, tail and error lines fit into 4,000 characters: no preset cuts shorter.
    # No output is larger than the largest window, of 2,000,000 tokens of some four characters.
    "output_lines": Bounds(50, 1_000_000),
    "output_chars": Bounds(4_000, 8_000_000),
    "output_bytes": Bounds(4_000, 8_000_000),
    "output_tokens": Bounds(1_000, 2_000_000),
    "output_spill_chars": Bounds(20_000, 8_000_000),
    "fit_keep_messages": Bounds(0, 100),
    # A recovery follows a refused request, so it may cut harder: as hard as `byte-budget` does.
    "recovery_keep_last": Bounds(1, 1_000),
    "recovery_tokens": Bounds(7_500, 2_000_000),
    "recovery_output_bytes": Bounds(1_000, 8_000_000),
}

SENDING = ("summarizer", "summarizer_base_url", "summarizer_model", "tool_digest")
"""Settings of a preset that say whether and where sessions are sent."""

TEXTS = ("placeholder", "summary_marker", "summary_prompt")


class Admitted(NamedTuple):
    """The settings of a project's file that count, and the others by name, each with the reason why it does not.
    `broken` are names and values that could not be used from anywhere."""

    settings: dict[str, Any]
    refused: dict[str, str]
    broken: dict[str, str]


MAX_PRINTED = 10**15

MAX_HINTS = 3
"""The nearest right name takes a millisecond to find, and a file may hold thousands of wrong ones."""


def admit(values: Mapping[str, Any]) -> Admitted:
    """Sort what a project's file says into what counts and what does not."""
    found = Admitted({}, {}, {})
    for name, value in values.items():
        if name not in ContextSettings.model_fields:
            hint = unknown_setting(name[:60]) if len(found.broken) < MAX_HINTS else ""
            found.broken[name] = hint.rstrip(".") if "Did you mean" in hint or "is called" in hint else "no setting"
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
    """Why a value cannot be used, None if it can."""
    # Nested values are not even printed: aliases can make a small YAML file endless.
    if not isinstance(value, str | int | float | None):
        return "not a number or a word"
    if name == "preset":
        return None if value in PRESETS else f"no preset; there are {', '.join(PRESETS)}"
    try:
        _as_setting(name, value)
    except ValidationError as error:
        return "; ".join(each["msg"] for each in error.errors())[:200]
    return None


def _as_setting(name: str, value: Any) -> Any:
    """A value as the setting reads it. Raises ValidationError."""
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
    least, most = BOUNDS[name]
    read = _as_setting(name, value)
    if not isinstance(read, int | float):
        return None
    if least is not None and read < least:
        return f"{_number(read)}, at least {_number(least)}"
    if most is not None and read > most:
        return f"{_number(read)}, at most {_number(most)}"
    return None


def _number(value: float) -> str:
    return f"{value:,}" if abs(value) < MAX_PRINTED else "a number of many digits"
