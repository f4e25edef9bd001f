"""What a summarizer is asked, what it answers, and what any of them can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from contextstash.context.turns import Turn
from contextstash_storage.records import Usage


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The turns to summarize, oldest first, and the summaries among them, which the new one replaces.

    `instructions` are the user's wishes. The summary may take `max_tokens`, as `count` counts them.
    """

    turns: tuple[Turn, ...]
    max_tokens: int
    count: Callable[[str], int]
    previous: str | None = None
    instructions: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary and who wrote it. `model`, `usage` and `duration_ms` are set where a model was called."""

    text: str
    strategy: str
    model: str | None = None
    usage: Usage | None = None
    duration_ms: float | None = None
    note: str | None = None


class Summarizer(Protocol):
    """Writes summaries by one strategy."""

    strategy: str

    def available(self) -> bool:
        """Whether it could write now."""
        ...

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """A summary of at most `request.max_tokens`. Raises ContextstashError where it can't be written."""
        ...
