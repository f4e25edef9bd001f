"""ContextSettings: every number and choice that steers estimation, pruning and compaction."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from contextstash_storage.errors import BadInputError


class ContextSettings(BaseModel):
    """How a session's context is managed. Token numbers are in the estimator's units; shares are of the
    usable window (window minus output reserve), 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str = Field(default="default", description="The named set of values the others start from.")
    automatic: bool = Field(default=True, description="Prune and compact by itself when messages are recorded.")

    estimator: Literal["tokenizer", "chars"] = Field(
        default="tokenizer", description="How text is counted: a calibrated tokenizer, or characters / 4."
    )
    anchored: bool = Field(default=True, description="Start from the last usage that the provider reported.")
    image_tokens: int = Field(default=1_500, ge=0, description="Tokens of one image.")
    message_overhead: int = Field(default=4, ge=0, description="Tokens a message costs beside its content.")

    window: int | None = Field(default=None, gt=0, description="Context window in tokens; by model if not set.")
    output_reserve: int | None = Field(
        default=None,
        ge=0,
        description="Tokens kept free for the reply; an eighth of the window, at most 32,000, if not set.",
    )

    prune_at: float = Field(default=0.70, gt=0, le=1, description="Level `prune` from this share on.")
    compact_at: float = Field(default=0.85, gt=0, le=1, description="Level `compact` from this share on.")
    critical_at: float = Field(default=0.95, gt=0, le=1, description="Level `critical` from this share on.")
    messages_at: int | None = Field(
        default=None, gt=0, description="Compact after this many messages since the last summary."
    )
    tokens_at: int | None = Field(default=None, gt=0, description="Compact from this many tokens on.")

    prune_keep_last: int = Field(default=3, ge=0, description="Newest tool outputs that a prune never touches.")
    prune_protect_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Newest tool-output tokens that a prune never touches; a quarter of usable, at most 40,000.",
    )
    prune_protect_turns: int = Field(default=0, ge=0, description="Newest user turns that a prune never touches.")
    prune_minimum_tokens: int | None = Field(
        default=None, ge=0, description="Least saving worth a prune; a tenth of usable, at most 20,000, if not set."
    )
    placeholder: Literal["described", "cleared"] = Field(
        default="described",
        description="What a pruned output leaves: tool, argument, size and handle, or a bare marker and handle.",
    )

    compact_keep_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Newest tokens that a compaction keeps; an eighth of usable, at most 20,000, if not set.",
    )
    compact_keep_messages: int = Field(default=4, ge=0, description="Newest messages that a compaction keeps at least.")
    summary_tokens: int = Field(default=2_500, gt=0, description="Longest summary that contextstash writes itself.")

    output_tokens: int | None = Field(default=None, gt=0, description="Longest single tool output a view shows whole.")


PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    # the parent design: chars/4, images 1,000, 4 a message; 200,000 - 32,000; 85 %; 2 turns, 40,000, 20,000; 2,500
    "token-budget": {
        "estimator": "chars",
        "anchored": False,
        "image_tokens": 1_000,
        "message_overhead": 4,
        "window": 200_000,
        "output_reserve": 32_000,
        "prune_at": 0.85,
        "compact_at": 0.85,
        "critical_at": 1.0,
        "prune_keep_last": 0,
        "prune_protect_tokens": 40_000,
        "prune_protect_turns": 2,
        "prune_minimum_tokens": 20_000,
        "placeholder": "cleared",
        "compact_keep_tokens": 0,
        "compact_keep_messages": 0,
        "output_tokens": 2_500,
    },
}


def known_settings() -> list[str]:
    """The names of all settings, in order."""
    return list(ContextSettings.model_fields)


def resolve_settings(*layers: Mapping[str, Any]) -> ContextSettings:
    """Settings from layers, later ones stronger; the preset that the strongest names comes before them all.

    Raises BadInputError on an unknown setting, naming the nearest right one, on an unknown preset, and on
    a value out of its range.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name not in ContextSettings.model_fields:
                raise BadInputError(_unknown("setting", name, known_settings()))
            merged[name] = value
    preset = merged.get("preset", "default")
    if preset not in PRESETS:
        raise BadInputError(_unknown("preset", str(preset), list(PRESETS)))
    try:
        return ContextSettings(**{**PRESETS[preset], **merged, "preset": preset})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadInputError(f"These settings cannot be used: {problems}.") from error


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known)}."
    return f"There is no {what} '{name}'. {hint}"
