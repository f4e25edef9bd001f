"""What a model is asked that writes summaries and digests, and what it returns.

The order of the writers is in `reduce/summary_writers.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from contextstash.events.turns import Turn
from contextstash_storage.errors import SummarizerError
from contextstash_storage.records import Usage

MIN_CHARACTERS = 20
"""A shorter text is not a summary but a reply such as "Done."."""

EXTRACTIVE = "extractive"
"""The strategy of a summary that is made of the session's state: the next one has what it tells."""

CONSENT = 'summarizer = "anthropic", summarizer_model, or the variable CONTEXTSTASH_ANTHROPIC_API_KEY'
"""The ways in which a user consents to calls of a model, as text for messages."""


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """How a model is called for a summary. `api_key` is a secret; it is never logged, stored or shown.

    `timeout` is in seconds, for one request; after it and the retries the summary is made of the session's state. Tool
    results are cut to `output_chars` characters for the model. `input_tokens` is the limit of one request, which leaves
    room for the prompt and the reply in a window of 200,000 tokens: of a longer history, the newest turns are sent.
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
    """A summary and who wrote it. `calls` are the requests to models that were made; `note` is what a person should
    know about how it was written, such as that the model failed."""

    text: str
    strategy: str
    model: str | None = None
    calls: tuple[WriterCall, ...] = ()
    note: str | None = None


class WriterFailedError(SummarizerError):
    """The model wrote nothing that can be used; `calls` are the requests that were made."""

    def __init__(self, text: str, calls: tuple[WriterCall, ...] = ()) -> None:
        super().__init__(text)
        self.calls = calls
