"""The interface of summarizers: their requests, their results and their errors.

    class FirstLines:
        strategy, slow = "first-lines", False

        async def write(self, request: SummaryRequest) -> WrittenSummary:
            lines = [text.partition("\\n")[0] for turn in request.turns for text in turn.texts]
            return WrittenSummary("\\n".join(lines), self.strategy)

The order in which summarizers are tried is in `writers/writer_fallback.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from contextstash.events.turns import Turn
from contextstash_storage.errors import SummarizerError
from contextstash_storage.records import Usage

MIN_CHARACTERS = 20
"""A shorter text is not a summary but a reply such as "Done."."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a model is called for a summary. `api_key` is a secret; it is never logged, stored or shown.

    `timeout` is in seconds, for one request; after it and the retries the next summarizer writes. Tool results are
    cut to `output_chars` characters for the summarizer. `input_tokens` is the limit of one request, which leaves
    room for the prompt and the reply in a window of 200,000 tokens: a longer history is summarized in parts.
    """

    model: str
    api_key: str | None = None
    base_url: str | None = None
    timeout: float = 60.0
    retries: int = 2
    output_chars: int | None = None
    input_tokens: int = 120_000


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """The turns to summarize, oldest first, and the summary before them.

    `previous` is the summary of everything before the turns. If `replaces` is true, the new summary replaces it; if
    not, it stays and the new one builds on it. `instructions` are the user's. `prompt` is the name or the text of a
    prompt (see `writers.prompts`). The summary may have `max_tokens` tokens, counted with `count`.

    `extract` writes one without a model, from the state of the session.
    """

    turns: tuple[Turn, ...]
    max_tokens: int
    count: Callable[[str], int]
    extract: Callable[[], str]
    previous: str | None = None
    replaces: bool = True
    instructions: str | None = None
    prompt: str = "handoff"


@dataclass(frozen=True, slots=True)
class WriterCall:
    """One request to a model: its usage and duration, and its error if it failed."""

    model: str
    usage: Usage | None
    duration_ms: float
    error: str | None = None


@dataclass(frozen=True, slots=True)
class WrittenSummary:
    """A summary and its summarizer. `calls` are the requests to models that were made; `note` is what a person should
    know about how it was written, such as which summarizer failed before."""

    text: str
    strategy: str
    model: str | None = None
    calls: tuple[WriterCall, ...] = ()
    note: str | None = None


class WriterFailedError(SummarizerError):
    """This summarizer failed; `calls` are the requests that it made."""

    def __init__(self, text: str, calls: tuple[WriterCall, ...] = ()) -> None:
        super().__init__(text)
        self.calls = calls


class Summarizer(Protocol):
    """Writes summaries by one strategy. `slow` is true if it calls a model."""

    strategy: str
    slow: bool

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """A summary of at most `request.max_tokens`. Raises SummarizerError if it fails; if requests were made, it is a
        WriterFailedError."""
        ...
