"""Who writes a summary: the host, a model, or contextstash itself, the first that succeeds."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import replace

from contextstash.safety.sanitize import encodable
from contextstash.writers.base import (
    MIN_CHARACTERS,
    Summarizer,
    SummaryRequest,
    WriterCall,
    WriterFailedError,
    WriterSettings,
    WrittenSummary,
)
from contextstash_storage.errors import BadInputError, SummarizerError

STRATEGIES = ("auto", "host", "anthropic", "extractive")

CONSENT = 'summarizer = "anthropic", summarizer_model, or the variable CONTEXTSTASH_ANTHROPIC_API_KEY'
"""The ways in which a user consents to calls of a model, as text for messages."""

MAX_HOST_TOKENS = 20_000
"""A longer text is not a summary: ten times a usual one, a tenth of a window of 200,000."""

logger = logging.getLogger(__name__)


class HostSummarizer:
    """Uses the text that the host passed, unless it is empty or too long to be a summary. Raises BadInputError."""

    strategy, slow = "host", False

    def __init__(self, summary: str) -> None:
        self._text = encodable(summary).strip()
        if len(self._text) < MIN_CHARACTERS:
            raise BadInputError(
                "summary is empty or too short to continue from. Pass the whole hand-off text, or omit it to get an"
                " extractive summary; the prompt compact describes what a summary must contain."
            )

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        """The text as it was passed: it is the host's, so it is not shortened to `request.max_tokens`."""
        tokens = request.count(self._text)
        if tokens > MAX_HOST_TOKENS:
            raise BadInputError(
                f"summary has {tokens:,} tokens; at most {MAX_HOST_TOKENS:,} are accepted. Shorten it to what is needed"
                " to continue."
            )
        return WrittenSummary(self._text, self.strategy)


class ExtractiveSummarizer:
    """Writes a summary from the state of the session: always available, without network, and deterministic."""

    strategy, slow = "extractive", False

    async def write(self, request: SummaryRequest) -> WrittenSummary:
        return WrittenSummary(await asyncio.to_thread(request.extract), self.strategy)


def choose(
    strategy: str, summary: str | None = None, *, settings: WriterSettings | None = None
) -> tuple[Summarizer, ...]:
    """The summarizers to try in order; the last one cannot fail for lack of a model.

    `auto` uses the host's `summary` if there is one, else a model whose key or base URL is set (`settings` is None
    unless the user consents to its use), else the extractive summarizer. Raises BadInputError if the
    strategy is unknown, if it is `host` and there is no summary, if it is neither `auto` nor `host` and there is one,
    or if it needs a model that may not or cannot be called.
    """
    if strategy not in STRATEGIES:
        raise BadInputError(f"Unknown strategy '{strategy[:40]}'. Pass one of {', '.join(STRATEGIES)}.")
    if summary is not None:
        if strategy not in ("auto", "host"):
            raise BadInputError(
                f"Pass either a summary or the strategy {strategy}: a passed summary is used unchanged."
            )
        return (HostSummarizer(summary),)
    if strategy == "host":
        raise BadInputError(
            "The strategy host needs `summary`: write one as the prompt compact describes and pass it,"
            " or use the strategy auto."
        )
    if strategy != "extractive" and settings is not None and (settings.api_key or settings.base_url):
        from contextstash.writers.anthropic import AnthropicSummarizer

        return (AnthropicSummarizer(settings), ExtractiveSummarizer())
    if strategy == "anthropic":
        raise BadInputError(
            "The strategy anthropic calls a model, which needs the user's consent and a key. Consent is given in the"
            f" user's own configuration by {CONSENT}. The key is read from that variable or from"
            " ANTHROPIC_API_KEY; an API of the user's own at summarizer_base_url needs none. Otherwise use the"
            " strategy auto."
        )
    return (ExtractiveSummarizer(),)


async def write_summary(request: SummaryRequest, writers: Sequence[Summarizer]) -> WrittenSummary:
    """The summary of the first summarizer that succeeds. The note says which failed and why; the calls are of all.

    Raises the error of the last summarizer if all fail.
    """
    calls: tuple[WriterCall, ...] = ()
    notes: list[str] = []
    for writer in writers:
        try:
            written = await writer.write(request)
        except SummarizerError as error:
            logger.warning("the summarizer %s failed: %s", writer.strategy, error)
            if writer is writers[-1]:
                raise
            calls += error.calls if isinstance(error, WriterFailedError) else ()
            notes.append(f"{writer.strategy} could not write the summary: {error}")
        else:
            notes += [written.note] if written.note else []
            return replace(written, calls=(*calls, *written.calls), note=" ".join(notes) or None)
    raise SummarizerError("No summarizer available.")


def content_key(request: SummaryRequest, strategy: str, model: str | None) -> str:
    """A digest of everything that determines a summary: the same session, instructions and summarizer have the same."""
    head = [strategy, model, request.prompt, request.instructions, request.max_tokens, request.previous]
    digest = hashlib.sha256(json.dumps([*head, request.replaces]).encode())
    for turn in request.turns:
        for text in (turn.role, *turn.texts):
            digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
