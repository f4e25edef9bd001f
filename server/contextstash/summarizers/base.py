"""What a summarizer is asked, what it answers, and what any of them can do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from contextstash.context.extraction.turns import Turn
from contextstash_storage.errors import SummarizerError
from contextstash_storage.records import Usage


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a model is asked for a summary. `api_key` is a secret; it is never logged, stored or shown.

    `temperature` is left to the model if it is None; `timeout` is in seconds, for one request; `output_chars` is
    to how many characters a tool result is cut for the writer, `input_tokens` how many tokens one request may hold
    (a longer history is summarized in parts).
    """

    model: str
    api_key: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    timeout: float = 60.0
    retries: int = 2
    output_chars: int | None = None
    input_tokens: int = 120_000


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The turns to summarize, oldest first, and the summary before them.

    `previous` is that of everything before the turns: the new one replaces it if `replaces` is set, else it
    stays and the new one builds on it. `merging` are summaries to be made one, oldest first; there are no turns
    then. `instructions` are the user's wishes, `prompt` names or is the prompt (see `summarizers.prompts`). The
    summary may take `max_tokens`, as `count` counts them.
    """

    turns: tuple[Turn, ...]
    max_tokens: int
    count: Callable[[str], int]
    previous: str | None = None
    replaces: bool = True
    merging: tuple[str, ...] = ()
    instructions: str | None = None
    prompt: str = "handoff"


@dataclass(frozen=True, slots=True)
class WriterCall:
    """One request to a model: what it took, and why it failed if it did."""

    model: str
    usage: Usage | None
    duration_ms: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary and who wrote it. `calls` are the requests to models that it took; `note` says what a person should
    know of how it came about, such as which writer failed before."""

    text: str
    strategy: str
    model: str | None = None
    calls: tuple[WriterCall, ...] = ()
    note: str | None = None


class WriterFailedError(SummarizerError):
    """This writer could not write; `calls` are the requests it made all the same."""

    def __init__(self, text: str, calls: tuple[WriterCall, ...] = ()) -> None:
        super().__init__(text)
        self.calls = calls


class Summarizer(Protocol):
    """Writes summaries by one strategy. `slow` says that it calls a model."""

    strategy: str
    slow: bool

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """A summary of at most `request.max_tokens`. Raises SummarizerError (WriterFailedError if requests were
        made) if it can't be written; never anything else on purpose."""
        ...
