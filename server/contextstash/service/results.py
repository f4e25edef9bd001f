"""What each use case answers: the structured content of the tools, and what the CLI prints as JSON.

Lists are never bare; what is absent is absent, not null.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field, SerializerFunctionWrapHandler, model_serializer

Level = Literal["ok", "prune", "compact", "critical", "overflow"]


class Result(BaseModel):
    """Base: fields that are None are left out when serialized."""

    @model_serializer(mode="wrap")
    def _without_absent(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in handler(self).items() if value is not None}


class Trigger(Result):
    """How far a trigger is: `threshold` is where it fires."""

    value: int
    threshold: int
    percent: float


class Estimate(Result):
    session_id: str | None = None
    tokens: int = Field(description="What the model would be sent now")
    window: int
    usable: int = Field(description="Window minus the reserve for the reply")
    percent: float = Field(description="Tokens as a percentage of usable")
    level: Level
    method: str = Field(description="How this was estimated")
    model: str | None = None
    breakdown: dict[str, int] = Field(description="Tokens by part")
    messages_trigger: Trigger | None = None
    tokens_trigger: Trigger
    next_step: str = Field(description="What to do now")


class ArchivedOutput(Result):
    handle: str
    tool: str
    tokens: int
    digest: str


class CacheCost(Result):
    """What a prune does to the provider's prompt cache."""

    rewritten_tokens: int = Field(description="Tokens after the first change, written to the cache anew")
    pays_after_requests: float = Field(description="Requests until the saving has paid for that")


class PruneResult(Result):
    session_id: str
    archived: list[ArchivedOutput]
    more: int | None = Field(default=None, description="Further outputs archived, not listed")
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    reason: str
    cache: CacheCost | None = None
    dry_run: bool | None = None
    note: str | None = None


class CompactResult(Result):
    session_id: str
    compacted: bool
    summary_id: str | None = None
    summary: str | None = None
    messages_summarized: int = 0
    first_seq: int | None = None
    last_seq: int | None = None
    strategy: str | None = None
    tokens_before: int
    tokens_after: int
    tokens_saved: int
    reason: str
    dry_run: bool | None = None
    note: str | None = None


class SummaryResult(Result):
    session_id: str
    summary_id: str
    summary: str
    messages_summarized: int
    first_seq: int
    last_seq: int
    created_at: str
    tokens: int
    strategy: str
    level: str


class OutputPage(Result):
    """One page of an archived output; positions are line numbers from 1."""

    handle: str
    tool: str
    text: str
    total_lines: int
    total_tokens: int
    next_offset: int | None = None
    note: str | None = None


class Hit(Result):
    handle: str | None = None
    session_id: str
    seq: int
    role: str
    snippet: str
    score: float
    matched: list[str]


class SearchResult(Result):
    hits: list[Hit]
    note: str | None = None


class RestoredOutput(Result):
    handle: str
    tokens: int


class RestoreResult(Result):
    session_id: str
    restored: list[RestoredOutput]
    not_archived: list[str] | None = None
    tokens_before: int
    tokens_after: int


class RecordResult(Result):
    session_id: str
    recorded: int
    duplicates: int
    tokens: int
    percent: float
    level: Level
    done: list[str] = Field(description="What was done by itself")


class LeftOut(Result):
    messages: int
    tokens: int
    first_seq: int
    last_seq: int


class ContextResult(Result):
    session_id: str
    format: str
    messages: list[dict[str, Any]]
    system: str | None = None
    tokens: int
    budget: int
    fits: bool
    left_out: LeftOut | None = None
    reason: str | None = None


class SessionLine(Result):
    session_id: str
    title: str | None = None
    agent: str | None = None
    model: str | None = None
    messages: int
    tokens: int
    percent: float
    level: Level
    updated_at: str
    parent_session_id: str | None = None


class SessionList(Result):
    sessions: list[SessionLine]
    next_cursor: str | None = None


class ConfigureResult(Result):
    session_id: str
    settings: dict[str, Any]
    changed: list[str]


class DeleteResult(Result):
    session_id: str
    deleted: bool
    messages: int


class MessageLine(Result):
    seq: int
    role: str
    kind: str
    tokens: int
    message: dict[str, Any]


class MessagePage(Result):
    session_id: str
    messages: list[MessageLine]
    total: int
    next_seq: int | None = None
