"""ContextSettings: the settings of estimation, pruning, compaction and recovery; and the presets of presets.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pkgutil import get_data
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StringConstraints, ValidationError, field_validator

from contextstash_storage.errors import BadInputError

_TABLES = tomllib.loads((get_data(__package__, "presets.toml") or b"").decode())


def _values(table: dict[str, Any]) -> dict[str, Any]:
    merged = {**_TABLES.get(table.get("like", ""), {}), **table}
    return {name: None if value == "none" else value for name, value in merged.items() if name != "like"}


_NUMBERS = _values(_TABLES.pop("numbers"))
PRESETS: dict[str, dict[str, Any]] = {name: _values(table) for name, table in _TABLES.items()}
"""The values that differ from the default, by preset."""


DESCRIBED = "described"

MAX_PINS = 50
"""Pins of a session. Each is looked up at each reduction; an agent works on fewer at once."""

MAX_DAYS = 36_500
"""Days after which a session may be deleted: a hundred years, which a date can hold."""

Pin = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
"""A handle, a path or a rule; paths of real projects are shorter."""

DESTINATION = "summarizer_base_url"
"""The setting that says where sessions are sent. A session cannot set it, since a model may change session settings."""

USERS_ALONE = frozenset({DESTINATION, "secrets", "encryption_key", "keep_days"})
"""The settings that no session has of its own."""

Estimator = Literal["tokenizer", "tiktoken", "chars", "chars_plus_one", "chars_rounded_up", "bytes"]
Cut = Literal["head", "head_tail", "middle", "smart"]
ToolDigest = Literal["placeholder", "heuristic", "llm", "off"]
Secrets = Literal["mask", "drop", "off"]


class UserSettings(BaseModel):
    """The settings that a user chooses, each by itself. Token numbers are those of the estimator; shares are of the
    usable window (the window less the output reserve), from 0 to 1. docs/settings.md is made of the text below each."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str = "default"
    """The named set of values that all other settings start from."""
    automatic: bool = True
    """Automatic management: prune and compact when messages are recorded."""

    estimator: Estimator = "tokenizer"
    """Token counter: a tokenizer with the model family's factor, the model's own tiktoken vocabulary, characters / 4
    (rounded down, plus one, or rounded up), or UTF-8 bytes / 4 (rounded up)."""
    anchored: bool = True
    """Start the estimate from the last usage that the provider reported."""

    window: PositiveInt | None = None
    """Context window in tokens; if not set, that of the model."""
    output_reserve: int | None = Field(default=None, ge=0)
    """Tokens reserved for the reply; if not set, an eighth of the window, at most 32,000."""
    fallback_tokens: int | None = Field(default=None, gt=0)
    """Usable tokens if the window is unknown: neither set here nor known for the model."""

    prune_automatic: bool = True
    """Prune automatically; if false, only on request."""
    # The thresholds of `staged`: 0.70, and 0.95 for `critical_at`.
    prune_at: float = Field(default=0.70, gt=0, le=1)
    """Prune threshold: the level is `prune` above this share of the usable window."""
    prune_at_results: int | None = Field(default=None, ge=0)
    """Maximum number of tool results in the view; older ones are archived, whatever their size."""
    # The outputs that the agent is comparing now; an older one takes a call to read. `staged` keeps 5, or 2 if it must.
    prune_keep_last: int = Field(default=3, ge=0)
    """Newest tool outputs that a prune always keeps."""
    prune_protect_tokens: int | None = Field(default=None, ge=0)
    """Newest tool outputs that a prune always keeps, in tokens; if not set, a quarter of the usable window, at most
    40,000."""
    tool_digest: ToolDigest = "placeholder"
    """How the outputs archived by `prune_at_results` are described: by their `placeholder`, or by a digest message that
    a model writes (`llm`) or that shows head and tail (`heuristic`); `off` archives none of them."""

    compact_automatic: bool = True
    """Compact automatically; if false, only on request."""
    # Nothing happens before the window is well used: each reduction rewrites the prompt cache. docs/measured.md.
    compact_at: float = Field(default=0.92, gt=0, le=1)
    """Compaction threshold: the level is `compact` above this share of the usable window."""
    messages_at: int | None = Field(default=None, gt=0)
    """Compaction threshold in messages since the last summary."""
    tokens_at: int | None = Field(default=None, gt=0)
    """Compaction threshold in tokens."""
    # Measured with bench/fidelity: docs/measured.md has the curve of retention against cost.
    low_water: float | None = Field(default=0.43, gt=0, lt=1)
    """Target of an automatic reduction as a share of the usable window: in one step, older tool outputs become
    placeholders and the oldest messages a summary. If not set, pruning and compaction each have their own threshold and
    limits."""
    compact_keep_tokens: int | None = Field(default=None, ge=0)
    """Newest messages that a compaction keeps, in tokens; if not set, the part of `low_water` that the summary leaves,
    without `low_water` an eighth of the usable window, at most 20,000."""
    # As many as `staged` keeps.
    compact_keep_messages: int = Field(default=4, ge=0)
    """Minimum number of newest messages that a compaction keeps."""

    summary_tokens: int | None = Field(default=None, gt=0)
    """Maximum length of a summary that contextstash writes, in tokens; if not set, an eighth of the usable window, at
    least 1,000 and at most 8,000."""
    summary_prompt: str = "handoff"
    """Instructions for the summary: `handoff`, `checkpoint`, `brief`, or your own text."""
    handoff_tokens: int | None = Field(default=None, ge=0)
    """Maximum length of the hand-off to a client's new window, in tokens; if not set, a fortieth of the window and an
    eighth of the session, whichever is less, at least 1,500 and at most the text of 7,200 tokens of GPT (11,160 of
    newer Claude models). 0 gives none."""
    summarizer: Literal["auto", "anthropic", "extractive"] = "auto"
    """Which summarizer writes if the host passes no summary. A model is called only if the user's own configuration
    says `anthropic` here, names a `summarizer_model`, or sets CONTEXTSTASH_ANTHROPIC_API_KEY."""
    summarizer_model: str = "claude-haiku-4-5"
    """Model that writes summaries. Naming one in the user's own configuration permits calls to it."""
    summarizer_base_url: str | None = None
    """Base URL of an Anthropic-compatible API to use instead of Anthropic's. A session cannot set it."""

    output_bytes: int | None = Field(default=None, gt=0)
    """Maximum UTF-8 bytes of one tool output in the view."""
    # 5 % of a window of 200,000 tokens; the rest of an output is one call away.
    output_tokens: int | None = Field(default=10_000, gt=0)
    """Maximum tokens of one tool output in the view."""
    output_cut: Cut = "smart"
    """Which part of a longer output is shown: its `head`, its `head_tail`, both ends of equal size (`middle`), or both
    ends and the relevant lines between them, such as errors and counts (`smart`)."""

    pin: tuple[Pin, ...] = Field(default=(), max_length=MAX_PINS)
    """Tool outputs that stay in the view: handles (out_…), or paths of files, of which the newest output that shows the
    file stays; or rules (rule: never push), which stand with every summary. What a summary replaces follows it word for
    word."""
    secrets: Secrets = "mask"
    """Keys, tokens and passwords in recorded text: `mask` hides them in the search index, summaries, hand-offs, pages
    and exports, and keeps the original; `drop` stores the messages without them; `off` hides nothing. A session cannot
    set it."""

    keep_days: int | None = Field(default=None, gt=0, le=MAX_DAYS)
    """Days after which `contextstash retain` deletes a session, for example in a scheduler; if not set, it is kept. A
    session cannot set it."""
    encryption_key: str | None = None
    """The file with the key of an encrypted database: `file:PATH`. Read from the environment or the user's own file
    alone. `contextstash encrypt` encrypts a database that exists."""

    @field_validator("encryption_key")
    @classmethod
    def _key_is_a_place(cls, place: str | None) -> str | None:
        if place is not None and not place.startswith("file:"):
            raise ValueError("must be file:PATH")  # not shown, since it may be a key
        return place


class ContextSettings(UserSettings):
    """The settings in force, with the numbers that only a preset sets: the table `numbers` of presets.toml says what
    each means. Token numbers are those of the estimator; shares are of the usable window, from 0 to 1."""

    image_tokens: int = _NUMBERS["image_tokens"]
    message_overhead: int = _NUMBERS["message_overhead"]
    conversation_overhead: int = _NUMBERS["conversation_overhead"]
    fallback_messages: int | None = _NUMBERS["fallback_messages"]
    prune_at_tokens: int | None = _NUMBERS["prune_at_tokens"]
    prune_keep_last_hard: int | None = _NUMBERS["prune_keep_last_hard"]
    prune_protect_turns: int = _NUMBERS["prune_protect_turns"]
    prune_minimum_tokens: int | None = _NUMBERS["prune_minimum_tokens"]
    prune_smallest_tokens: int = _NUMBERS["prune_smallest_tokens"]
    placeholder: str = _NUMBERS["placeholder"]
    compact_by_level: bool = _NUMBERS["compact_by_level"]
    compact_when: Literal["above", "reached"] = _NUMBERS["compact_when"]
    critical_at: float = _NUMBERS["critical_at"]
    compact_keep: Literal["both", "either"] = _NUMBERS["compact_keep"]
    summaries: Literal["one", "levels"] = _NUMBERS["summaries"]
    summary_share: float | None = _NUMBERS["summary_share"]
    summary_marker: str | None = _NUMBERS["summary_marker"]
    summarizer_output_chars: int | None = _NUMBERS["summarizer_output_chars"]
    output_lines: int | None = _NUMBERS["output_lines"]
    output_chars: int | None = _NUMBERS["output_chars"]
    output_share: float | None = _NUMBERS["output_share"]
    output_notice: Literal["within", "beside"] = _NUMBERS["output_notice"]
    output_spill_chars: int | None = _NUMBERS["output_spill_chars"]
    fit_by: Literal["archive", "leave_out"] = _NUMBERS["fit_by"]
    fit_keep_messages: int = _NUMBERS["fit_keep_messages"]
    recovery_keep_last: int = _NUMBERS["recovery_keep_last"]
    recovery_tokens: int | None = _NUMBERS["recovery_tokens"]
    recovery_output_bytes: int = _NUMBERS["recovery_output_bytes"]
    recovery_cut_always: bool = _NUMBERS["recovery_cut_always"]


def resolve_settings(*layers: Mapping[str, Any]) -> ContextSettings:
    """Merges layers of settings: a later layer overrides an earlier one, and all override the preset, which is the one
    that the last of them names.

    Raises BadInputError if a setting or the preset is unknown, naming the nearest right one, or if a value is out of
    range.
    """
    merged = {name: value for layer in layers for name, value in layer.items()}
    check_names(merged)
    preset = merged.get("preset", "default")
    if str(preset) not in PRESETS:
        from contextstash.safety.sanitize import did_you_mean

        raise BadInputError(f"There is no preset '{preset}'. {did_you_mean(str(preset), PRESETS)}")
    try:
        return ContextSettings(**{**PRESETS[preset], **merged, "preset": preset})
    except ValidationError as error:
        problems = dict.fromkeys(_problem(each["loc"][0], each["msg"], each["input"]) for each in error.errors())
        raise BadInputError(f"These settings cannot be used: {'; '.join(problems)}.") from error


def _problem(name: int | str, message: str, value: object) -> str:
    """The error of a setting, in words that name no library. What our own rules refuse is not shown: it may be a
    key."""
    rule = message.partition(", unable to ")[0].replace("a valid integer", "a whole number").replace("a valid ", "a ")
    if not rule.startswith("Input should be "):
        return f"{name}: {message.removeprefix('Value error, ')}"
    return f"{name} must be {rule.removeprefix('Input should be ')}, not {value!r}"


def consenting(values: Mapping[str, Any]) -> str | None:
    """The name of the user's own setting that permits calls to a model, None if there is none."""
    if values.get("summarizer") == "anthropic":
        return "summarizer"
    return "summarizer_model" if values.get("summarizer_model") else None


def session_layer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The session's own settings that are in force: without those of the user alone, which another program may have
    stored."""
    return {name: value for name, value in settings.items() if name not in USERS_ALONE}


def check_names(names: Iterable[str], place: str = "") -> None:
    """Raises BadInputError, with the nearest right name, if one in this place is not a setting."""
    for name in names:
        if name in UserSettings.model_fields:
            continue
        sentence = f"There is no setting '{name}'{place and f' (in {place})'}."
        if name in ContextSettings.model_fields:
            raise BadInputError(f"{sentence} Only a preset sets this number: choose one by preset=…")
        from contextstash.safety.sanitize import did_you_mean

        listed = "contextstash config show lists the settings."
        raise BadInputError(f"{sentence} {did_you_mean(name, UserSettings.model_fields, listed)}")
