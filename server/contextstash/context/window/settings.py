"""ContextSettings: every number and choice that steers estimation, pruning, compaction and recovery."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from string import Formatter
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from contextstash.context.window.presets import PRESETS
from contextstash_storage.errors import BadInputError

DESCRIBED = "described"

PLACEHOLDER_FIELDS = frozenset({"handle", "tool", "argument", "subject", "tokens", "lines", "digest"})

MAX_PLACEHOLDER_CHARACTERS = 1_000
"""Ours have at most 300; one that is longer than most outputs saves nothing."""

DESTINATION = "summarizer_base_url"
"""Says where sessions are sent: never a session's own setting, which a model may change."""

Estimator = Literal["tokenizer", "tiktoken", "chars", "chars_plus_one", "chars_rounded_up", "bytes"]
Cut = Literal["head", "head_tail", "middle", "smart"]
Thinking = Literal["auto", "keep", "strip", "drop", "wait"]
ToolDigest = Literal["placeholder", "heuristic", "llm", "off"]


class ContextSettings(BaseModel):
    """How a session's context is managed. Token numbers are in the estimator's units; shares are of the
    usable window (window minus output reserve), 0 to 1."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: str = Field(default="default", description="The named set of values the others start from.")
    automatic: bool = Field(default=True, description="Prune and compact by itself when messages are recorded.")

    estimator: Estimator = Field(
        default="tokenizer",
        description="How text is counted: a calibrated tokenizer, the model's tiktoken vocabulary as it is,"
        " characters / 4 (rounded down, plus one, or rounded up), or UTF-8 bytes / 4 rounded up.",
    )
    anchored: bool = Field(default=True, description="Start from the last usage that the provider reported.")
    calibrated: bool = Field(
        default=True, description="Correct the count of what came since by how earlier counts compared with reports."
    )
    image_tokens: int = Field(default=1_500, ge=0, description="Tokens of one image.")
    message_overhead: int = Field(default=4, ge=0, description="Tokens a message costs beside its content.")
    conversation_overhead: int = Field(default=0, ge=0, description="Tokens a message list costs beside its messages.")

    window: int | None = Field(default=None, gt=0, description="Context window in tokens; by model if not set.")
    output_reserve: int | None = Field(
        default=None,
        ge=0,
        description="Tokens kept free for the reply; an eighth of the window, at most 32,000, if not set.",
    )
    fallback_tokens: int | None = Field(
        default=None, gt=0, description="Usable tokens if neither `window` nor the model tells the window."
    )
    fallback_messages: int | None = Field(
        default=None,
        gt=0,
        description="Compact from this many messages since the last summary on, if no token limit is known.",
    )

    prune_automatic: bool = Field(default=True, description="Prune by itself; else only when asked to.")
    prune_at: float = Field(default=0.70, gt=0, le=1, description="Level `prune` above this share.")
    prune_at_tokens: int | None = Field(default=None, gt=0, description="Prune above this many tokens too.")
    prune_at_results: int | None = Field(
        default=None, ge=0, description="Archive the oldest tool results beyond this many, whatever their size."
    )
    prune_keep_last: int = Field(default=3, ge=0, description="Newest tool outputs that a prune never touches.")
    prune_keep_last_hard: int | None = Field(
        default=None, ge=0, description="Newest tool outputs that are left once a prune did not get below `compact_at`."
    )
    prune_protect_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Newest tool-output tokens that a prune never touches; a quarter of usable, at most 40,000.",
    )
    prune_protect_turns: int = Field(default=0, ge=0, description="Newest user turns that a prune never touches.")
    prune_minimum_tokens: int | None = Field(
        default=None, ge=0, description="Least saving worth a prune; a tenth of usable, at most 20,000, if not set."
    )
    prune_smallest_tokens: int = Field(
        default=150, ge=0, description="A smaller output stays: a placeholder would save next to nothing."
    )
    placeholder: str = Field(
        default=DESCRIBED,
        description="What a pruned output leaves: `described` (tool, argument, size, digest and handle), or a text of"
        " yours with {handle} and, if you like, {tool}, {argument}, {subject}, {tokens}, {lines}, {digest}, without a"
        " format.",
    )
    tool_digest: ToolDigest = Field(
        default="placeholder",
        description="Who tells what outputs archived by `prune_at_results` held: their placeholder, or a digest message"
        " of its own (`llm`, `heuristic`); `off` archives none of them.",
    )
    digest_input_chars: int = Field(default=12_000, gt=0, description="Characters of an output that a model digests.")
    digest_chars: int = Field(default=1_200, gt=0, description="Longest digest by a model, in characters.")
    digest_heuristic_chars: int = Field(default=800, gt=0, description="Longest digest without a model, in characters.")

    compact_automatic: bool = Field(default=True, description="Compact by itself; else only when asked to.")
    compact_at: float = Field(default=0.85, gt=0, le=1, description="Level `compact` above this share.")
    compact_by_level: bool = Field(default=True, description="Whether the level `compact` alone makes it compact.")
    compact_when: Literal["above", "reached"] = Field(
        default="above", description="Whether `compact_at` must be passed or only reached."
    )
    critical_at: float = Field(default=0.95, gt=0, le=1, description="Level `critical` above this share.")
    messages_at: int | None = Field(
        default=None, gt=0, description="Compact from this many messages since the last summary on."
    )
    tokens_at: int | None = Field(default=None, gt=0, description="Compact from this many tokens on.")
    compact_keep: Literal["both", "either"] = Field(
        default="both",
        description="Keep `compact_keep_tokens` and at least `compact_keep_messages`, or the one, else the other.",
    )
    compact_keep_tokens: int | None = Field(
        default=None,
        ge=0,
        description="Newest tokens that a compaction keeps; an eighth of usable, at most 20,000, if not set.",
    )
    compact_keep_messages: int = Field(default=4, ge=0, description="Newest messages that a compaction keeps at least.")

    summaries: Literal["one", "levels"] = Field(
        default="levels", description="One summary of everything before, or recent ones beside older merged ones."
    )
    summaries_share: float = Field(
        default=0.10, gt=0, le=1, description="Share of usable from which on summaries are merged."
    )
    summary_tokens: int = Field(default=2_500, gt=0, description="Longest summary that contextstash writes itself.")
    summary_share: float | None = Field(
        default=None, gt=0, le=1, description="A summary from this share of the room on is not sent."
    )
    summary_marker: str | None = Field(
        default=None, description="What stands before a summary in the view; a sentence of what it is, if not set."
    )
    summary_prompt: str = Field(
        default="handoff", description="What a writer is asked for: `handoff`, `checkpoint`, `brief`, or your own text."
    )
    summary_audit_tokens: int = Field(
        default=300, ge=0, description="Room for pointers to what a summary lacks; 0 for no audit."
    )
    summarizer: Literal["auto", "anthropic", "sampling", "extractive"] = Field(
        default="auto",
        description="Who writes summaries if the host passes none. A model is called only if the user's own"
        " configuration says `anthropic` here, names a `summarizer_model`, or sets CONTEXTSTASH_ANTHROPIC_API_KEY.",
    )
    summarizer_model: str = Field(
        default="claude-haiku-4-5",
        description="The model that writes summaries. Whoever names one in the user's own configuration lets it be"
        " called.",
    )
    summarizer_base_url: str | None = Field(
        default=None,
        description="An Anthropic-compatible API other than Anthropic's own. Never a session's own setting.",
    )
    summarizer_temperature: float | None = Field(default=None, ge=0, le=2, description="The model's own if not set.")
    summarizer_timeout: float = Field(default=60.0, gt=0, description="Seconds for one request to the writer.")
    summarizer_retries: int = Field(default=2, ge=0, le=10, description="How often a failed request is repeated.")
    summarizer_output_chars: int | None = Field(
        default=4_000, gt=0, description="To how many characters a tool result is cut for the writer."
    )
    summarizer_input_tokens: int = Field(
        default=120_000, gt=1_000, description="Longest request to the writer; longer histories go in parts."
    )

    output_lines: int | None = Field(default=None, gt=0, description="Most lines of one tool output in the view.")
    output_chars: int | None = Field(default=None, gt=0, description="Most characters of one tool output in the view.")
    output_bytes: int | None = Field(default=None, gt=0, description="Most UTF-8 bytes of one tool output in the view.")
    output_tokens: int | None = Field(
        default=10_000, gt=0, description="Longest single tool output a view shows whole."
    )
    output_cut: Cut = Field(
        default="smart",
        description="What is shown of a longer output: its head, head and tail, both ends of the middle-out cut, or"
        " both ends with the lines that matter (errors, the summary line).",
    )
    output_notice: Literal["within", "beside"] = Field(
        default="within", description="Whether what says what was cut counts against the limits or comes beside them."
    )
    output_spill_chars: int | None = Field(
        default=None, gt=0, description="From more characters on, only a preview with handle and SHA-256 is shown."
    )

    fit_by: Literal["archive", "leave_out"] = Field(
        default="archive",
        description="How a request is made to fit: older outputs archived first, or messages left out.",
    )
    fit_keep_messages: int = Field(default=0, ge=0, description="Newest messages that are never left out.")

    recovery_keep_last: int = Field(default=2, ge=0, description="Newest tool outputs that a recovery keeps whole.")
    recovery_tokens: int | None = Field(
        default=None, gt=0, description="What a recovery aims at, in tokens; half of usable if not set."
    )
    recovery_output_bytes: int = Field(
        default=4_000, gt=0, description="To how many bytes a recovery cuts each output that is left."
    )
    recovery_cut_always: bool = Field(
        default=False, description="Cut them at every recovery; else only if pruning was not enough."
    )
    thinking: Thinking = Field(
        default="auto",
        description="What becomes of thinking that an edit invalidates: stripped, dropped by the provider, kept, or the"
        " edit waits; `auto` chooses.",
    )

    @field_validator("placeholder")
    @classmethod
    def _placeholder_can_be_filled(cls, text: str) -> str:
        if text == DESCRIBED:
            return text
        if len(text) > MAX_PLACEHOLDER_CHARACTERS:
            raise ValueError(f"has {len(text):,} characters, at most {MAX_PLACEHOLDER_CHARACTERS:,} are taken")
        parts = [part for part in Formatter().parse(text) if part[1] is not None]
        fields = {name for _, name, _, _ in parts}
        # A width ({handle:>9999999}) makes a placeholder of any size; an attribute or index reaches into the program.
        has_format = any(spec or conversion for _, _, spec, conversion in parts)
        if "handle" not in fields or fields - PLACEHOLDER_FIELDS or has_format:
            known = ", ".join(f"{{{name}}}" for name in sorted(PLACEHOLDER_FIELDS))
            raise ValueError(
                f"must be '{DESCRIBED}' or a text with {{handle}}; the fields are {known}, as they stand here,"
                " without a format, conversion, attribute or index"
            )
        return text


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
                raise BadInputError(unknown_setting(name))
            merged[name] = current_value(name, value)
    preset = merged.get("preset", "default")
    if preset not in PRESETS:
        raise BadInputError(_unknown("preset", str(preset), list(PRESETS)))
    try:
        return ContextSettings(**{**PRESETS[preset], **merged, "preset": preset})
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise BadInputError(f"These settings cannot be used: {problems}.") from error


def consenting(values: Mapping[str, Any]) -> str | None:
    """The name of the setting among the user's own that says that a model may be called, None if none does."""
    if values.get("summarizer") == "anthropic":
        return "summarizer"
    return "summarizer_model" if values.get("summarizer_model") else None


def session_layer(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What counts of a session's own settings, which may have been stored by an earlier version or by somebody else:
    nothing that says where sessions are sent, and no placeholder that is refused now."""
    layer = {name: value for name, value in settings.items() if name != DESTINATION}
    if "placeholder" in layer:
        try:
            ContextSettings(placeholder=layer["placeholder"])
        except ValidationError:
            del layer["placeholder"]
    return layer


FORMER_VALUES: Mapping[str, Mapping[str, str]] = {"output_cut": {"telling": "smart"}}
"""What values of settings were called before; they are still read, and stand in stored sessions."""


def current_value(name: str, value: object) -> Any:
    """What a setting's value is called now."""
    return FORMER_VALUES.get(name, {}).get(value, value) if isinstance(value, str) else value


def former_values(layer: Mapping[str, Any]) -> list[str]:
    """A sentence about each value of a layer that is called something else now."""
    return [
        f"The value '{layer[name]}' of the setting '{name}' is now called '{values[layer[name]]}'."
        for name, values in FORMER_VALUES.items()
        if isinstance(layer.get(name), str) and layer[name] in values
    ]


PARENT_NAMES = {
    "max_messages_before_summary": "messages_at",
    "max_tokens_before_summary": "tokens_at",
    "min_recent_messages": "fit_keep_messages",
    "response_reserve": "output_reserve",
    "auto_summarize": "compact_automatic",
    "model_context_limit": "window",
    "output_token_max": "output_reserve",
    "auto_compact_threshold": "compact_at",
    "prune_protect": "prune_protect_tokens",
    "prune_minimum": "prune_minimum_tokens",
    "max_output_tokens": "output_tokens",
    "max_messages": "fallback_messages",
    "max_tokens": "fallback_tokens",
    "keep_recent": "compact_keep_messages",
    "keep_recent_tokens": "compact_keep_tokens",
    "reserve_tokens": "output_reserve",
    "tool_call_cutoff": "prune_at_results",
    "tool_summary_strategy": "tool_digest",
    "auto_compact": "automatic",
    "max_context_tokens": "window",
    "max_context_bytes": "prune_at_tokens",
    "keep_recent_tools": "prune_keep_last",
}
"""What settings of the parent designs are called here."""


def unknown_setting(name: str) -> str:
    """A sentence about a name that is no setting, with the right one if it can be guessed."""
    ours = PARENT_NAMES.get(name.lower())
    if ours:
        return f"There is no setting '{name}'. It is called '{ours}' here."
    return _unknown("setting", name, known_settings())


def _unknown(what: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"Did you mean '{near[0]}'?" if near else f"Known: {', '.join(known)}."
    return f"There is no {what} '{name}'. {hint}"
